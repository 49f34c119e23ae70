"""Densities: by their means over cells, or by their harmonics."""
