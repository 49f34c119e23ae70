"""Time: a flow is planned, solved window by window, observed, and recorded.

plan/         the arguments of a run, checked before anything is compiled, and what the run will cost
stepping/     one window solved by diffrax, which no other folder imports
window_loop   window after window, for one run and for many
observables/  what is measured on the way; `events` says when to stop
recording/    frames in memory or in a file, with checkpoints and provenance
simulate      `stream`, `simulate` and `evolve`
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
