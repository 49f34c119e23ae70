"""A disk that is full, as far as writers can see."""

import contextlib
import resource


@contextlib.contextmanager
def largest_file(size):
    """No file of this process or its children may grow beyond so many bytes: a full disk, as far as writers can see."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
