"""How many alarms does one change give, and is its end found?

    python -m benchmarks.steps

600 streams of independent normal samples of 1, 2 and 5 features, one of which shifts by .5, 1 or 2 standard deviations
after 1,500 samples; A = 10,000, the default escalation, `on_alarm` rebase and hold (dead time of 100 samples).

- *steps* stay: alarms and incidents within 3,000 samples, and recoveries, all of them wrong;
- *visits* end after 100 samples, before a warm-up is over, or (hold) after 1,000: recoveries after the end, their
  delay, and incidents that begin after it, within 2,000 samples, all of them pages for nothing.

Streams that alarm before the change, and visits that raise nothing, are left out.

- *differences* of pairs, d = 2: 20 streams of each size whose live side differs in one feature by 0 to 1 standard
  deviations for 20,000 pairs and then no more for 8,000: alarms, incidents, recoveries before the end, all of them
  wrong (but of size 0), and the delay of those after it, of the alarms that are up at the end.

The last line is one JSON object; the
exit code is 1 where 120 steps give more than 122 alarms with `rebase`, the mode that promises one for each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from kstream_worker.detectors.pairs import PairBank
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.records import Transition

BEFORE, AFTER, AFTERWARDS = 1500, 3000, 2000
DIMS, SIZES = (1, 2, 5), (0.5, 1.0, 2.0)
STREAMS, PER, MOST = 600, 120, 122
ARL, ESCALATION = 10_000.0, 10.0
SECOND = 1000
SETTINGS = {"rebase": 0, "hold": 100 * SECOND}  # dead time, milliseconds
DIFFERENCES = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
PAIRS_BEFORE, PAIRS, PAIRS_AFTER, PAIR_STREAMS = 1000, 20_000, 8000, 20
VISITS = (("rebase", 100), ("hold", 100), ("hold", 1000))


class Kind(NamedTuple):
    """Streams of one kind: `stay` samples of the shift, then `rest` without."""

    dims: int
    size: float
    streams: int
    stay: int
    rest: int


def kinds(stay: int, rest: int) -> list[Kind]:
    """600 streams, divided among dimensions and sizes."""
    pairs = list(product(DIMS, SIZES))
    ends = [STREAMS * k // len(pairs) for k in range(len(pairs) + 1)]
    return [Kind(d, size, ends[k + 1] - ends[k], stay, rest) for k, (d, size) in enumerate(pairs)]


def transitions_of(kind: Kind, on_alarm: str, seed: int, *, dependence: str = "none") -> list[list[Transition]]:
    """Of each stream that does not alarm before its change."""
    n = BEFORE + kind.stay + kind.rest
    y = np.random.default_rng(seed).normal(size=(n, kind.streams, kind.dims))
    y[BEFORE : BEFORE + kind.stay, :, 0] += kind.size
    bank = RankBank(
        kind.dims,
        arl=ARL,
        escalation=ESCALATION,
        on_alarm=on_alarm,
        dead_time_ms=SETTINGS[on_alarm],
        dependence=dependence,
        capacity=kind.streams,
    )
    slots = np.array([bank.allocate(b"%d" % key) for key in range(kind.streams)])
    times = np.repeat(SECOND * np.arange(n), kind.streams)
    scores = bank.update(np.tile(slots, n), None, y.reshape(-1, kind.dims), times)
    own = {slot: [one for one in scores.transitions if one.slot == slot] for slot in slots.tolist()}
    return [told for told in own.values() if not any(one.kind == "raised" and one.seq <= BEFORE for one in told)]


def steps(on_alarm: str) -> dict[str, int]:
    """Changes that stay."""
    streams = [told for k, kind in enumerate(kinds(AFTER, 0)) for told in transitions_of(kind, on_alarm, k)]
    raised = [[one.incident for one in told if one.kind == "raised" and one.incident] for told in streams]
    return {
        "steps": len(streams),
        "alarms": sum(map(len, raised)),
        "incidents": sum(len({one.seq for one in found}) for found in raised),
        "missed": sum(not found for found in raised),
        "wrongly_recovered": sum(one.reason == "recovered" for told in streams for one in told),
    }


def visits(on_alarm: str, stay: int) -> dict[str, float]:
    """Changes that end."""
    end = BEFORE + stay
    streams = [
        told
        for k, kind in enumerate(kinds(stay, AFTERWARDS))
        for told in transitions_of(kind, on_alarm, 100 + k)
        if any(one.kind == "raised" and one.seq <= end for one in told)
    ]
    back = [_recovered(told) for told in streams]
    delays = [seq - end for seq in back if seq > end]
    return {
        "visits": len(streams),
        "recovered": len(delays),
        "too_early": sum(0 < seq <= end for seq in back),
        "delay": float(np.median(delays)) if delays else -1.0,
        "delay_90": float(np.quantile(delays, 0.9)) if delays else -1.0,
        "incidents_afterwards": sum(
            one.kind == "raised" and one.incident is not None and one.incident.seq == one.seq > end
            for told in streams
            for one in told
        ),
    }


def differences(on_alarm: str, size: float) -> dict[str, float]:
    """One size of difference between the sides of pairs."""
    n, end = PAIRS_BEFORE + PAIRS + PAIRS_AFTER, PAIRS_BEFORE + PAIRS
    x, y = np.random.default_rng(round(100 * size)).normal(size=(2, n, PAIR_STREAMS, 2))
    y[PAIRS_BEFORE:end, :, 0] += size
    bank = PairBank(
        2,
        arl=ARL,
        escalation=ESCALATION,
        on_alarm=on_alarm,
        dead_time_ms=SETTINGS[on_alarm],
        capacity=PAIR_STREAMS,
    )
    slots = [bank.allocate(b"%d" % key) for key in range(PAIR_STREAMS)]
    times = np.repeat(SECOND * np.arange(n), PAIR_STREAMS)
    scores = bank.update(np.tile(np.array(slots), n), x.reshape(-1, 2), y.reshape(-1, 2), times)
    own = [[one for one in scores.transitions if one.slot == slot and one.seq > PAIRS_BEFORE] for slot in slots]
    before = [[one for one in told if one.seq <= end] for told in own]
    raised = [[one.incident for one in told if one.kind == "raised" and one.incident] for told in before]
    up = [told for told, early in zip(own, before, strict=True) if early and early[-1].kind == "raised"]
    ends = [next((one.seq - end for one in told if one.seq > end and one.kind == "cleared"), None) for told in up]
    delays = [delay for delay in ends if delay is not None]
    incidents = [len({one.seq for one in found}) for found in raised]
    return {
        "found": sum(map(bool, raised)),
        "alarms": sum(map(len, raised)),
        "incidents": sum(incidents),
        "with_several": sum(count > 1 for count in incidents),
        "recovered": sum(one.reason == "recovered" for told in before for one in told),
        "up_at_the_end": len(up),
        "never_cleared": len(up) - len(delays),
        "delay": float(np.median(delays)) if delays else -1.0,
        "delay_90": float(np.quantile(delays, 0.9)) if delays else -1.0,
    }


def _recovered(told: Sequence[Transition]) -> int:
    """Number of the sample at which the first recovery was found; 0 for none."""
    return next((one.seq for one in told if one.reason == "recovered"), 0)


def main() -> None:
    """Run, print, judge."""
    found: dict[str, dict[str, float]] = {}
    for on_alarm in SETTINGS:
        found[f"steps_{on_alarm}"] = dict(steps(on_alarm))
        print(f"steps_{on_alarm}", found[f"steps_{on_alarm}"], flush=True)
    for on_alarm, stay in VISITS:
        found[f"visits_{on_alarm}_{stay}"] = visits(on_alarm, stay)
        print(f"visits_{on_alarm}_{stay}", found[f"visits_{on_alarm}_{stay}"], flush=True)
    for on_alarm, size in product(SETTINGS, DIFFERENCES):
        found[f"differences_{on_alarm}_{size}"] = differences(on_alarm, size)
        print(f"differences_{on_alarm}_{size}", found[f"differences_{on_alarm}_{size}"], flush=True)
    print(json.dumps(found))
    row = found["steps_rebase"]
    sys.exit(row["alarms"] * PER > MOST * row["steps"])


if __name__ == "__main__":
    main()
