"""Helpers for text, files, arrays, point sets, progress, signals and caches, independent of all other rooms."""
