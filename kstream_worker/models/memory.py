"""Memory of matrices whose rows come one by one: a row takes none until it is written to, and growth copies nothing.

A bank is mostly keys that are seldom seen. Their rows are mostly zeros, in pages that were never written to and that
the system therefore does not hold. Three things would take them up: huge pages, copies into a larger matrix, and
writing zeros. So the system is asked for small pages, memory grows in its place, and only what differs is written.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Sequence
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


def put_rows(slot: int, matrices: Sequence[NDArray[Any]], rows: Sequence[bytes]) -> None:
    """Write the bytes of one row of each of three matrices; where both are zeros, nothing is written.

    Args:
        slot: number of the row.
        matrices: C-contiguous, of 8, 8 and 2 bytes an entry.
        rows: as long as a row of each.
    """
    _put_rows(slot, *matrices, *(np.frombuffer(row, np.uint8) for row in rows))


@jit
def _put_rows(
    slot: int,
    floats: NDArray[np.float64],
    ints: NDArray[np.int64],
    shorts: NDArray[np.int16],
    new_floats: NDArray[np.uint8],
    new_ints: NDArray[np.uint8],
    new_shorts: NDArray[np.uint8],
) -> None:
    _put(floats[slot].view(np.uint64), new_floats.view(np.uint64), _PAGE // 8)
    _put(ints[slot].view(np.uint64), new_ints.view(np.uint64), _PAGE // 8)
    _put(shorts[slot].view(np.uint16), new_shorts.view(np.uint16), _PAGE // 2)


@inline
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
