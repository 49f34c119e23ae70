"""Figures of pairs of particles: similarities, Gram and attention matrices, and their ranks."""
