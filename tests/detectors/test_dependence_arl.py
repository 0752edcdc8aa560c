"""The short form of `make bench-dependence`: false alarms on dependent streams come no more often than stated."""

from __future__ import annotations

from benchmarks import arl_dependence


def test_run_lengths_and_a_delay_of_the_short_bench() -> None:
    result = arl_dependence.run(short=True)
    assert arl_dependence.failures(result) == []
    rows = {row["process"]: row for row in result["arl"]}
    assert set(rows) == {"AR .6", "held .5", "GARCH(.1, .85)"}
    for row in rows.values():
        assert row["alarms"] > 5
        assert row["interval"][1] >= result["stated"]
        assert "approximate" in row["guarantees"]
    assert result["walks"]["notices"] == [1, 1]
    assert result["walks"]["most"] <= 1
    (delay,) = result["delay"]
    assert delay["missed"] <= 4  # a shift as early in a key's life as its warm-up is long is absorbed by some
    assert delay["median"] < 200
