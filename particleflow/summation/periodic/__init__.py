"""Sums over a lattice of copies: charges in a periodic box."""
