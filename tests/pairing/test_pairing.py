"""What a model sees of a record."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kstream_worker.errors import ConfigError
from kstream_worker.pairing import Explicit, Pairing, Stream, pairing_of
from kstream_worker.records import FloatMatrix, Samples

SHAPES = st.tuples(st.integers(0, 8), st.integers(1, 3))
MATRICES = SHAPES.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=st.floats(-1e6, 1e6)))


def pair(pairing: Pairing, y: FloatMatrix, rows: slice | list[int]) -> Samples:
    n = len(y)
    keys = [b"key-%d" % (i % 3) for i in range(n)]
    chosen = list(range(n))[rows] if isinstance(rows, slice) else rows
    x = -y[rows] if isinstance(pairing, Explicit) else None
    times = 1_760_000_000_000 + 10 * np.arange(n)
    return pairing.pair(np.arange(n)[rows], times[rows], [keys[i] for i in chosen], x, y[rows])


@pytest.mark.parametrize("mode", [Explicit, Stream])
@given(y=MATRICES, data=st.data())
def test_rows_are_neither_added_dropped_nor_reordered(
    mode: type[Explicit] | type[Stream], y: FloatMatrix, data: st.DataObject
) -> None:
    pairing = mode(("a",) * y.shape[1])
    whole = pair(pairing, y, slice(None))
    assert whole.y.tobytes() == y.tobytes()
    assert (whole.x is None) == (mode is Stream)
    cut = data.draw(st.integers(0, len(y)))
    first, second = pair(pairing, y, slice(0, cut)), pair(pairing, y, slice(cut, None))
    assert whole.keys == first.keys + second.keys
    assert whole.offsets.tolist() == first.offsets.tolist() + second.offsets.tolist()
    assert whole.times.tolist() == first.times.tolist() + second.times.tolist()
    assert whole.y.tobytes() == first.y.tobytes() + second.y.tobytes()
    if whole.x is not None and first.x is not None and second.x is not None:
        assert whole.x.tobytes() == first.x.tobytes() + second.x.tobytes() == (-y).tobytes()


@pytest.mark.parametrize("mode", [Explicit, Stream])
@given(y=MATRICES)
def test_other_keys_change_nothing(mode: type[Explicit] | type[Stream], y: FloatMatrix) -> None:
    pairing = mode(("a",) * y.shape[1])
    whole = pair(pairing, y, slice(None))
    own = [i for i in range(len(y)) if i % 3 == 1]
    alone = pair(pairing, y, own)
    assert alone.y.tobytes() == whole.y[own].tobytes()
    assert alone.offsets.tolist() == whole.offsets[own].tolist()


def test_the_mode_follows_from_the_sides_unless_given() -> None:
    assert isinstance(pairing_of("auto", two_sided=True, feature_names=("a",)), Explicit)
    assert isinstance(pairing_of("auto", two_sided=False, feature_names=("a",)), Stream)
    assert isinstance(pairing_of("reference", two_sided=False, feature_names=("a",)), Stream)
    assert pairing_of("stream", two_sided=False, feature_names=("a", "b")).feature_names == ("a", "b")


@pytest.mark.parametrize(
    ("mode", "two_sided", "words"),
    [
        ("explicit", False, r"bind input\.x"),
        ("stream", True, "one side"),
        ("reference", True, "reference takes one side"),
        ("lag", True, "one side"),
        ("single", True, "one side"),
        ("joined", False, "'joined' is unknown"),
    ],
)
def test_a_mode_that_does_not_fit_is_refused(mode: str, two_sided: bool, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        pairing_of(mode, two_sided=two_sided, feature_names=("a",))


def test_sides_that_do_not_fit_are_refused() -> None:
    one, two = np.zeros((1, 1)), np.zeros((2, 1))
    column = np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="two sides of one length"):
        Explicit(("a",)).pair(column, column, [b"k"], None, one)
    with pytest.raises(ValueError, match="two sides of one length"):
        Explicit(("a",)).pair(column, column, [b"k"], two, one)
    with pytest.raises(ValueError, match="one-sided"):
        Stream(("a",)).pair(column, column, [b"k"], one, one)
