"""Densities: cells, peaks and modes."""
