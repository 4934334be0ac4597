"""Compilation of inner loops with numba: when, where to, and one cache key over the files of all of them.

numba is imported, which takes as long as reading a small cluster, when the first kernel is called.

It recompiles a function when the file of that function changes. Functions of other files that are compiled into it do
not count: after an edit of `knapsack`, a kernel of `pricing` would run the old code. Here the key is the content of all
files with kernels.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache, update_wrapper
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES: Final = (
    "columns/knapsack.py",
    "columns/knapsack_exact.py",
    "columns/pricing.py",
    "search/dealing.py",
    "search/ruin_recreate.py",
)
"""Files with kernels, relative to the package."""
_CPUINFO: Final = Path("/proc/cpuinfo")
_PACKAGE: Final = Path(__file__).parents[1]
STAMP: Final = hashlib.sha256(b"\0".join((_PACKAGE / name).read_bytes() for name in FILES)).digest()
"""Changes with any of these files."""
_KERNELS: Final[list[Kernel]] = []
_LOCK: Final = threading.Lock()


class Kernel:
    """A function for loops over arrays, compiled when it is called; it releases the interpreter while it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function = function
        self.compiled: Callable[..., Any] | None = None
        _KERNELS.append(self)

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - numba infers types
        """Run it."""
        if self.compiled is None:
            with _LOCK:
                _compile_all()
            assert self.compiled is not None  # every kernel has one now
        return self.compiled(*arguments)


kernel: Final = Kernel
"""The decorator."""


def _compile_all() -> None:
    """Make numba's functions of all kernels known so far, and have them call each other instead of kernels."""
    import numba  # noqa: PLC0415 - takes long, and a plan may need no kernel

    directory = cache_directory()
    if directory is not None:
        numba.config.CACHE_DIR = str(directory)  # type: ignore[attr-defined]  # numba makes its settings when it is imported
        numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}._locator"  # type: ignore[attr-defined]
    for one in _KERNELS:
        if one.compiled is None:
            one.compiled = numba.njit(cache=directory is not None, nogil=True)(one.function)
    for one in _KERNELS:
        names = one.function.__globals__
        names.update({name: value.compiled for name, value in names.items() if isinstance(value, Kernel)})


def __getattr__(name: str) -> type:
    """Return the class by which numba finds its cache, which cannot be made before numba is imported."""
    if name != "_locator":
        raise AttributeError(name)
    from numba.core.caching import UserProvidedCacheLocator  # noqa: PLC0415 - as above

    class Stamped(UserProvidedCacheLocator):
        @classmethod
        def get_suitable_cache_subpath(cls, _py_file: str) -> str:
            return Path(_mark()).stem  # wherever the sources are: another clone of them needs no other code

        def get_source_stamp(self) -> bytes:
            return STAMP

        def ensure_cache_path(self) -> None:
            if not is_compiled():  # else nothing is written, and the directory may be read-only
                super().ensure_cache_path()  # type: ignore[no-untyped-call]  # numba has no types

    return Stamped


def is_loaded() -> bool:
    """Return whether numba has been imported, which takes longer than most plans."""
    return "numba" in sys.modules


def is_compiled() -> bool:
    """Return whether all kernels have been compiled for this processor."""
    directory = cache_directory()
    return directory is not None and (directory / _mark()).exists()


def note_compiled() -> None:
    """Note that they have been."""
    directory = cache_directory()
    if directory is not None and not is_compiled():
        (directory / _mark()).touch()


@cache
def cache_directory() -> Path | None:
    """Return where compiled code is kept; None: nowhere.

    In the package where it came with compiled kernels; else in `NUMBA_CACHE_DIR`, else in a directory of the user that
    all installations share.
    """
    if (_packaged() / _mark()).exists():
        return _packaged()
    return next((one for one in _directories() if _is_writable(one)), None)


def install_compiled() -> None:
    """Copy the compiled code into the package, if this user may write there: all its users find it then."""
    directory, package = cache_directory(), _packaged()
    if directory is None or directory == package or not is_compiled() or not _is_writable(package):
        return
    shutil.rmtree(package)  # what was compiled from other sources
    shutil.copytree(directory / Path(_mark()).stem, package / Path(_mark()).stem)
    (package / _mark()).touch()


def _packaged() -> Path:
    return _PACKAGE / "columns" / "__pycache__" / "kernels"


def _directories() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given)
        return
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kinema" / "kernels"
    yield _packaged()
    yield Path(tempfile.gettempdir()) / f"kinema-kernels-{os.getuid()}"


def _is_writable(directory: Path) -> bool:
    """Return whether this user, and no other, may keep code there."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
        return directory.stat().st_uid == os.getuid()
    except OSError:
        return False


@cache
def _mark() -> str:
    """Return the name of the file that says so: another one for other sources, versions and processors."""
    made_by = version("numba"), version("llvmlite"), sys.version, platform.machine(), _processor()
    key = hashlib.sha256(repr(made_by).encode() + STAMP)
    return f"kernels-{key.hexdigest()[:16]}.compiled"


def _processor() -> list[str]:
    """Return what numba compiles for: the processor in `NUMBA_CPU_NAME`, as in an image, or this machine's."""
    named = os.environ.get("NUMBA_CPU_NAME")
    if named:
        return [named, os.environ.get("NUMBA_CPU_FEATURES", "")]
    lines = _CPUINFO.read_text(encoding="utf-8").splitlines() if _CPUINFO.exists() else [platform.processor()]
    return sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
