"""The one operator, log-mass and local mean, what is read from it, and every way to sum it.

    local_mean, nested_mean, localization, operators    what is read: means, weights, covariances, local fits
    moments, base, prepared, candidates                 what a summation is; `auto` chooses one
    exact, native, spectral, near_far, tree, features   the ways to sum; `random_batch` for stochastic layers
    periodic                                            charges and all their copies on a lattice

What is summed (kernel, measure) does not depend on how; so a new summation fits wherever these do.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
