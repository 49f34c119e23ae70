"""Figures of space: where particles are in a frame, and the paths that they take."""
