"""The short form of `benchmarks.arl_pairs`: false alarms as stated, and as quick as the plain transcription."""

from __future__ import annotations

import pytest

from benchmarks import arl_pairs


def test_run_length_and_delay_hold_in_the_short_form() -> None:
    result = arl_pairs.run(short=True)
    for row in result["arl"].values():
        assert row["alarms"] > 5
        assert row["interval"][1] >= arl_pairs.ARL
    for row in result["delay"].values():
        assert row["m1"]["missed"] == 0
        assert row["m1"]["ratio"] <= 1.10


@pytest.mark.parametrize(("count", "interval"), [(0, (0.0, 3.689)), (10, (4.795, 18.390))])
def test_poisson_interval(count: int, interval: tuple[float, float]) -> None:
    assert arl_pairs.poisson_interval(count) == pytest.approx(interval, abs=1e-3)
