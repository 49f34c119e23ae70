"""Trajectories in the formats of other programs: H5MD, GSD, extended XYZ, npz, NetCDF and xarray."""
