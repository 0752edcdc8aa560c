"""The one place that knows numba; everything else imports `jit` and `inline` from here.

Settings are chosen for equal bits on every machine: no `fastmath` (no reassociation, no fused multiply-add), no
`parallel`. Inner loops written as `y[i] += a * x[i]` are still vectorised by LLVM, since no sum is reordered by that.

Compiled kernels are cached in `$KSTREAM_WORKER_JIT_CACHE`, else `$XDG_CACHE_HOME/kstream_worker`, else
`~/.cache/kstream_worker`. Each kernel's folder is named after the contents of its source file and of all files of this
package that it imports: numba alone does not notice that a function *called* by a cached kernel has changed, and
needlessly minds paths and dates. A folder that cannot be written is read if it was filled before (an image with a
read-only root).
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import caching

P = ParamSpec("P")
R = TypeVar("R")

# numba's stubs know only a part of it
_njit: Any = numba.njit
_config: Any = numba.config
_caching: Any = caching
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": False, "error_model": "numpy"}
_PACKAGE_ROOT = Path(__file__).parent.parent


def cache_folder() -> Path:
    """Where compiled kernels are kept, each in a folder named after its sources."""
    explicit = os.environ.get("KSTREAM_WORKER_JIT_CACHE")
    if explicit:
        return Path(explicit)
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "/nonexistent") + "/.cache"
    return Path(home) / "kstream_worker"


@cache
def _sources(path: Path) -> frozenset[Path]:
    """The file and, transitively, the files of this package that it imports."""
    found = {path}
    waiting = [path]
    while waiting:
        for imported in _imports(waiting.pop()):
            if imported not in found:
                found.add(imported)
                waiting.append(imported)
    return frozenset(found)


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    return tuple(_find_imports(ast.parse(path.read_bytes())))


def _find_imports(tree: ast.AST) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_PACKAGE_ROOT.name):
            base = _PACKAGE_ROOT.parent / node.module.replace(".", "/")
            for alias in node.names:
                # A module or a package of that name, else something that the module itself holds.
                yield from _source_of(base / alias.name) or _source_of(base)


def _source_of(module: Path) -> tuple[Path, ...]:
    candidates = (module.with_suffix(".py"), module / "__init__.py")
    return tuple(c for c in candidates if c.is_file())


@cache
def _content_name(path: Path) -> str:
    digest = hashlib.blake2b(numba.__version__.encode(), digest_size=10)
    for source in sorted(_sources(path)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return f"{path.stem}-{digest.hexdigest()}"


class _Locator(caching.UserProvidedCacheLocator):
    """Names the folder by content, so that neither path nor date matters; a folder that is only readable will do."""

    def get_cache_path(self) -> str:
        return str(_CACHE_FOLDER / _content_name(Path(self._py_file)))

    def get_source_stamp(self) -> tuple[float, int]:
        return 0.0, 0  # the folder's name says it all

    def ensure_cache_path(self) -> None:
        if _CACHE_WRITABLE:
            Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


_CACHE_FOLDER = cache_folder()
_CACHE_WRITABLE = _writable(_CACHE_FOLDER)
_CACHE_USABLE = _CACHE_WRITABLE or _CACHE_FOLDER.is_dir()
if _CACHE_USABLE:
    _config.CACHE_DIR = str(_CACHE_FOLDER)
    _caching.CompileResultCacheImpl._locator_classes.insert(0, _Locator)
    if not _CACHE_WRITABLE:
        _caching.FunctionCache.save_overload = lambda *_: None


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at first call, or load from the cache; releases the GIL while running."""
    cached = _CACHE_USABLE and Path(function.__code__.co_filename).is_file()
    compiled: Any = _njit(cache=cached, **_OPTIONS)(function)
    return cast("Callable[P, R]", compiled)


def inline(function: Callable[P, R]) -> Callable[P, R]:
    """As `jit`, for small functions called inside compiled loops: no cache entry of their own."""
    compiled: Any = _njit(no_cfunc_wrapper=True, **_OPTIONS)(function)
    return cast("Callable[P, R]", compiled)
