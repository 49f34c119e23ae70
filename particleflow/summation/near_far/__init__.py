"""Sums over near pairs only, with a bound of what is left out."""
