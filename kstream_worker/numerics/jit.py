"""The one place that knows numba; everything else imports `jit` and `inline` from here.

Settings are chosen for equal bits on every machine: no `fastmath` (no reassociation, no fused multiply-add), no `parallel`.
Inner loops written as `y[i] += a * x[i]` are still vectorised by LLVM, since no sum is reordered by that.

Compiled kernels are cached in `$KSTREAM_WORKER_JIT_CACHE`, else `$XDG_CACHE_HOME/kstream_worker`, else
`~/.cache/kstream_worker`, in a folder named after the hash of all sources of compiled code: numba alone does not notice that a
function *called* by a cached kernel has changed. A folder that cannot be written is read if it was filled before (an image
with a read-only root), and left alone otherwise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import caching

P = ParamSpec("P")
R = TypeVar("R")

_COMPILED_PACKAGES = ("numerics", "models", "detectors")


def _source_hash() -> str:
    root = Path(__file__).parent.parent
    digest = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    for package in _COMPILED_PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where compiled kernels of exactly these sources are kept."""
    explicit = os.environ.get("KSTREAM_WORKER_JIT_CACHE")
    if explicit:
        base = Path(explicit)
    else:
        home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "/nonexistent") + "/.cache"
        base = Path(home) / "kstream_worker"
    return base / _source_hash()


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


class _Locator(caching.UserProvidedCacheLocator):
    """As numba's, but a folder that is only readable will do."""

    def ensure_cache_path(self) -> None:
        if _CACHE_WRITABLE:
            Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)


_CACHE_FOLDER = cache_folder()
_CACHE_WRITABLE = _writable(_CACHE_FOLDER)
_CACHE_USABLE = _CACHE_WRITABLE or _CACHE_FOLDER.is_dir()
if _CACHE_USABLE:
    numba.config.CACHE_DIR = str(_CACHE_FOLDER)
    caching.CompileResultCacheImpl._locator_classes.insert(0, _Locator)
    if not _CACHE_WRITABLE:
        caching.FunctionCache.save_overload = lambda *_: None


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at first call, or load from the cache; releases the GIL while running."""
    compiled: Any = numba.njit(nogil=True, fastmath=False, error_model="numpy", cache=_CACHE_USABLE)(function)
    return cast("Callable[P, R]", compiled)


def inline(function: Callable[P, R]) -> Callable[P, R]:
    """As `jit`, for small functions called inside compiled loops: no cache entry of their own."""
    compiled: Any = numba.njit(nogil=True, fastmath=False, error_model="numpy")(function)
    return cast("Callable[P, R]", compiled)
