from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstream_worker.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("200ms", 0.2), ("1d", 86400.0), ("2h", 7200.0), ("5m", 300.0), ("5min", 300.0), ("0", 0.0),
     ("1.5 s", 1.5), ("250us", 0.00025), (3, 3.0), (0.25, 0.25), ("1e3", 1000.0)],
)  # fmt: skip
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 week", "1S", "one", -1, float("nan"), float("inf"), "1s 2"])
def test_wrong_durations(text: str | float) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("16MiB", 16 * 2**20), ("512KiB", 524288), ("1MB", 10**6), ("1kB", 1000), ("1GiB", 2**30), (17, 17), ("17", 17),
     ("1.5KiB", 1536), ("10 B", 10), ("16mib", 16 * 2**20)],
)  # fmt: skip
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1.5B", "-1", "1 parsec", -3, 0.5, float("nan")])
def test_wrong_sizes(text: str | float) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_size(text)


@given(st.integers(0, 10**7))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, rel=1e-5)


@given(st.integers(0, 2**45))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size
