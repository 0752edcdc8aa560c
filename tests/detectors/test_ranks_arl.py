"""The short form of `make bench-arl` for one stream per key: run length under no change, delays."""

from __future__ import annotations

from benchmarks import arl_ranks


def test_run_length_and_delay_of_the_short_bench() -> None:
    result = arl_ranks.run(short=True)
    (row,) = result["arl"].values()
    assert row["samples"] > 90_000
    assert row["interval"][1] is None or row["interval"][1] >= arl_ranks.ARL
    (delay,) = result["delay"]["2"].values()
    assert delay["runs"] == 20
    assert delay["missed"] == 0
    assert delay["ratio"] <= 1.10
    assert delay["close"] >= 15  # the transcription knows no sizes and no pick: its columns have more weight
