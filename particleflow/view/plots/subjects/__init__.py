"""Figures of what a particular run is about: a hysteresis loop, recalled images, a fitted curve, heat, layers."""
