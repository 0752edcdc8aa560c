"""Memory of matrices whose rows come one by one: a row takes none until it is written to, and growth copies nothing.

A bank is mostly keys that are seldom seen. Their rows are mostly zeros, in pages that were never written to and that
the system therefore does not hold. Three things would take them up: huge pages, copies into a larger matrix, and
writing zeros. So the system is asked for small pages, memory grows in its place, and only what differs is written.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from kstream_worker.numerics.jit import inline, jit

Number = TypeVar("Number", np.float64, np.int64, np.int16)

_PAGE = 4096


class RowMemory(Generic[Number]):
    """Memory of a matrix of zeros with a fixed number of columns.

    Args:
        dtype: of its entries.
        columns: may be 0.
    """

    def __init__(self, dtype: type[Number], columns: int) -> None:
        self._dtype: np.dtype[Number] = np.dtype(dtype)
        self._columns = columns
        self._map = _zeros(1)

    def matrix(self, rows: int) -> NDArray[Number]:
        """The matrix with so many rows, not fewer than before; what was in it stays.

        Matrices that were handed out before should be gone: while there is one, all is copied.
        """
        size = max(rows * self._columns * self._dtype.itemsize, 1)
        try:
            self._map.resize(size)
        except (BufferError, SystemError):  # somebody looks at it; the system cannot grow memory
            old, self._map = self._map, _zeros(size)
            np.frombuffer(self._map, np.uint8, len(old))[:] = np.frombuffer(old, np.uint8)
        entries = np.frombuffer(self._map, self._dtype, rows * self._columns)
        return entries.reshape(rows, self._columns)


def put_row(row: NDArray[Any], values: bytes) -> None:
    """Write the bytes of a row of equal length; where both are zeros, nothing is written."""
    words = f"u{row.itemsize}"
    _put(row.view(words), np.frombuffer(values, words), _PAGE // row.itemsize)


def clear_row(row: NDArray[Any]) -> None:
    """Write zeros where something else is."""
    put_row(row, bytes(row.nbytes))


@jit
def _put(target: NDArray[Any], values: NDArray[Any], page: int) -> None:
    for first in range(0, len(values), page):
        part, place = values[first : first + page], target[first : first + page]
        if _any(part) or _any(place):
            place[:] = part


@inline
def _any(words: NDArray[Any]) -> bool:
    bits = words[0]
    for i in range(len(words)):
        bits |= words[i]
    return bool(bits != 0)


def _zeros(size: int) -> mmap.mmap:
    if sys.platform != "linux":
        return mmap.mmap(-1, size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory
