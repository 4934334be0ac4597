"""One thread for the libraries below numpy, whatever the environment says.

Pools of threads make the last bits of a product depend on how many there are, and on these matrices they cost more than
they gain.
"""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def one_thread() -> threadpool_limits:
    """Return a context in which BLAS and OpenMP use one thread."""
    return threadpool_limits(limits=1)
