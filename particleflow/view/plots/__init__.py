"""Figures: one drawing a function, each on an `ax`; what all of them need is in `base`."""
