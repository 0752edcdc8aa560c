"""Memory of rows: growth keeps what is there, and rows are written bit for bit."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pytest

from kstream_worker.models.bank import SlotArrays
from kstream_worker.models.memory import RowMemory, put_rows

SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, 5e-324] * 1000)


def test_growth_keeps_what_is_there() -> None:
    memory = RowMemory(np.float64, 3)
    matrix = memory.matrix(4)
    matrix[:] = np.arange(12.0).reshape(4, 3)
    del matrix
    larger = memory.matrix(5000)
    assert larger.shape == (5000, 3)
    assert (larger[:4].ravel() == np.arange(12.0)).all()
    assert not larger[4:].any()


def test_growth_under_somebody_s_eyes_copies() -> None:
    memory = RowMemory(np.int64, 2)
    former = memory.matrix(2)
    former[:] = 7
    larger = memory.matrix(3)
    larger[0] = 8
    assert former.tolist() == [[7, 7], [7, 7]]
    assert larger.tolist() == [[8, 8], [7, 7], [0, 0]]


@pytest.mark.parametrize("columns", [0, 1, 511, 512, 513, 2047, 5000])
def test_rows_are_written_bit_for_bit(columns: int) -> None:
    dtypes = np.float64, np.int64, np.int16
    matrices = [RowMemory(dtype, columns).matrix(3) for dtype in dtypes]
    empty = [bytes(columns * matrix.itemsize) for matrix in matrices]
    for values in (SPECIAL[:columns], np.zeros(columns), SPECIAL[::-1][:columns], -np.zeros(columns)):
        rows = [values.tobytes(), values[::-1].tobytes(), values.tobytes()[: 2 * columns]]
        for put in (rows, empty, rows):
            put_rows(1, matrices, put)
            assert [matrix[1].tobytes() for matrix in matrices] == put
        assert not any(matrix[0].any() or matrix[2].any() for matrix in matrices)


def test_a_reused_row_is_clear_and_its_neighbours_stay() -> None:
    slots = SlotArrays("test", "-", 0, floats=700, ints=3, shorts=5, capacity=1)
    first, second, third = (slots.allocate(name) for name in (b"a", b"b", b"c"))
    for matrix in (slots.floats, slots.ints, slots.shorts):
        matrix[:] = -1
    slots.free(second)
    assert slots.allocate(b"d") == second
    assert not slots.floats[second].any()
    assert not slots.shorts[second].any()
    assert not slots.ints[second, 1:].any()
    for other in (first, third):
        assert (slots.floats[other] == -1).all()
        assert (slots.shorts[other] == -1).all()


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is asked for as Linux counts it")
def test_a_key_that_was_seen_once_takes_a_page_and_not_a_row() -> None:
    slots = SlotArrays("test", "-", 0, floats=8192, ints=2)  # 64 KiB a row
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(4000):
        slot = slots.allocate(b"%d" % number)
        slots.floats[slot, 3] = 1.0
    for slot in range(1000):  # gone, and others in their rows
        slots.free(slot)
    for number in range(1000):
        slots.floats[slots.allocate(b"new-%d" % number), 3] = 1.0
    grown_bytes = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown_bytes < 4000 * 64 * 1024 / 4
