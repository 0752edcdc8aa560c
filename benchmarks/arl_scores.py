"""Scores of a model that goes on learning: alarms while nothing changes, and delays, of bets both ways and upwards.

    python -m benchmarks.arl_scores

A score is the square of an innovation. While the model learns, it falls: as with recursive least squares of 20 terms,
or exponentially with a stochastic gradient's time constant, by a third or a quarter in all. The change multiplies it.
"""

from __future__ import annotations

import json

import numpy as np

from kstream_worker.detectors.ranks import RankBank

ARL = 10_000.0
KEYS, SAMPLES, CHANGE_AT = 20, 12_000, 8_000
FALLS = {
    "none": lambda t: np.zeros_like(t, dtype=np.float64),
    "least squares": lambda t: 20.0 / (t + 250.0),
    "gradient, 2,000": lambda t: 0.5 * np.exp(-t / 2_000.0),
    "gradient, 10,000": lambda t: 0.3 * np.exp(-t / 10_000.0),
}


def run(fall: str, alternative: str, factor: float) -> tuple[int, list[float]]:
    """Alarms before the change, and of each key the delay of the first after it; infinite where it warmed up then."""
    rng = np.random.default_rng(3)
    t = np.arange(SAMPLES)[:, None]
    scores = (1.0 + FALLS[fall](t)) * rng.standard_normal((SAMPLES, KEYS)) ** 2
    scores[CHANGE_AT:] *= factor
    bank = RankBank(1, arl=ARL, alternative=alternative, spikes=False, transform="none")
    early, delays = 0, []
    for key in range(KEYS):
        slots = np.full(SAMPLES, bank.allocate(b"%d" % key))
        found = bank.update(slots, None, scores[:, [key]], 1000 * np.arange(SAMPLES)).transitions
        raised = [one.seq - CHANGE_AT for one in found if one.kind == "raised"]
        early += sum(seq <= 0 for seq in raised)
        delays.append(min((seq for seq in raised if seq > 0), default=float("inf")))
    return early, delays


def main() -> None:
    rows = []
    print(f"A = {ARL:g}, {KEYS} keys; alarms in 1e5 samples before the change, delays median / 90 % after it")
    print(f"{'the score falls':18} {'bets':10} {'alarms':>7} {'x 1.5':>12} {'x 3':>12}")
    for fall in FALLS:
        for alternative in ("two-sided", "greater"):
            small, large = run(fall, alternative, 1.5), run(fall, alternative, 3.0)
            alarms = 1e5 * small[0] / (KEYS * CHANGE_AT)
            shown = [
                f"{np.median(delays):.0f} / {np.quantile(delays, 0.9, method='higher'):.0f}"
                for _, delays in (small, large)
            ]
            print(f"{fall:18} {alternative:10} {alarms:7.1f} {shown[0]:>12} {shown[1]:>12}")
            rows.append({"fall": fall, "bets": alternative, "alarms": alarms, "x1.5": shown[0], "x3": shown[1]})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
