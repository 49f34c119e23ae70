"""Particles: points of fixed weight, which may merge as clusters form."""
