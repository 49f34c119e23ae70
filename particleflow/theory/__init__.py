"""What is known without running a simulation.

stability            growth rates of perturbations of the uniform state, branches of stationary densities
equilibria           fixed points of flows and layers, with eigenvalues and kind
exponential_family   the Laplace view of attention: log-normalizers, means, covariances
kernel_as_law        a kernel as a joint law: marginals, conditionals, mutual information
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
