"""Densities: cells, curves, histograms and functions."""
