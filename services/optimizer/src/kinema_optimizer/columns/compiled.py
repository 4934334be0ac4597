"""Compilation of inner loops with numba, and one cache key over the files of all of them.

numba recompiles a function when the file of that function changes. Functions of other files that are compiled into it
do not count: after an edit of `knapsack`, a kernel of `pricing` would run the old code. Here the key is the content of
all files with kernels.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import numba
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator

FILES: Final = (
    "columns/knapsack.py",
    "columns/knapsack_exact.py",
    "columns/pricing.py",
    "search/dealing.py",
    "search/ruin_recreate.py",
)
"""Files with kernels, relative to the package."""
_PACKAGE: Final = Path(__file__).parents[1]
STAMP: Final = hashlib.sha256(b"\0".join((_PACKAGE / name).read_bytes() for name in FILES)).digest()
"""Changes with any of these files."""


class _Stamped:
    def get_source_stamp(self) -> bytes:
        """Return the key under which numba believes its cache."""
        return STAMP


class InGiven(_Stamped, UserProvidedCacheLocator):
    """Caches in `NUMBA_CACHE_DIR`, where that is set."""


class InPackage(_Stamped, InTreeCacheLocator):
    """Caches beside the files, where they are writable."""


class InHome(_Stamped, UserWideCacheLocator):
    """Caches in the user's cache directory."""


_LOCATORS: Final = (InGiven, InPackage, InHome)
numba.config.CACHE_LOCATOR_CLASSES = ",".join(f"{__name__}.{one.__name__}" for one in _LOCATORS)  # type: ignore[attr-defined]  # numba makes its settings when it is imported
kernel: Final = numba.njit(cache=True, nogil=True)
"""Decorator that compiles a function for loops over arrays; it releases the interpreter while it runs."""
