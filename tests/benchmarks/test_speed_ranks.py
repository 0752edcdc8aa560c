"""The bench of times reaches into the bank: that it still can; no time is judged here."""

from benchmarks import speed_ranks


def test_all_contestants_run() -> None:
    row = speed_ranks.run(short=True)["2"]
    assert set(row) == {"bank", "bare", "base", "plain", "ratio"}
    assert all(0.0 < value < float("inf") for value in row.values())
