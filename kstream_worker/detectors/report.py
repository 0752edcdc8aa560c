"""What a detector says of a crossing: names of scores, likely change, direction, features that drive it.

A detector bets on several fixed scores of a scaled sample z (its coordinates, its length, products of
coordinates) and on a learned one. This module names them and turns a crossing into a `records.Transition`;
nothing here decides anything.

Change time: for each bet the product of its multipliers is followed since it was last at most 1 (a *run*, the
CUSUM of that bet). The start of the run that has paid best when the alarm is raised is the likely first
changed sample: the estimate of Page, Continuous inspection schemes, Biometrika 41, 1954. It is early where chance had
already begun a run, and late where a bet had to learn first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kstream_worker.detectors.thresholds import Standing
from kstream_worker.numerics.jit import inline
from kstream_worker.records import Explanation, Transition

LEARNED = "learned"
RADIUS = "radius"

_CLEARLY = 10.0  # by how much one side's bets must lead the other's


def check_arl(arl: float, largest: float, *, per_day: bool = False) -> float:
    """The average run length, or with `per_day` the days that it lasts, as a float.

    Raises:
        ValueError: not above 1 (with `per_day` 0), or above the largest that keeps the statistics finite.
    """
    least = 0.0 if per_day else 1.0
    if not least < arl <= largest:
        raise ValueError(f"arl is {arl}; it must lie above {least:g} and not above {largest:g}")
    return float(arl)


@dataclass(frozen=True, slots=True)
class Score:
    """A number computed from a sample, and the features (by index) that it looks at."""

    name: str
    features: tuple[int, ...]


class Crossing(NamedTuple):
    """The parts of a `records.Transition` that come from the state of the key."""

    score: str
    change_seq: int
    change_time: int
    direction: str
    features: tuple[tuple[str, float], ...]
    explanation: Explanation | None = None


def direction_of(up: float, down: float) -> str:
    """`up` or `down` where the best bet on that side holds ten times what that on the other holds, else `both`."""
    if up >= _CLEARLY * down:
        return "up"
    return "down" if down >= _CLEARLY * up else "both"


class Guarantee(NamedTuple):
    """`exact_if_iid`, `approximate` or `none`, with the reason in words for people."""

    level: str
    reason: str


def feature_names(names: Sequence[str] | None, dims: int) -> tuple[str, ...]:
    """The names of the features, `f0`, `f1`, ... where none are given.

    Raises:
        ValueError: their number is not `dims`, or a name stands twice.
    """
    if names is None:
        return tuple(f"f{j}" for j in range(dims))
    if len(names) != dims:
        raise ValueError(f"feature_names: {len(names)} names for {dims} dimensions; give one name per dimension")
    if len(set(names)) != dims:
        raise ValueError(f"feature_names: {list(names)} holds a name twice; names must differ")
    return tuple(names)


def fixed_scores(names: Sequence[str], *, radius: bool, products: bool, squares: bool) -> tuple[Score, ...]:
    """Coordinates, then (if asked) the radius, then products a*b, with a*a too if `squares`.

    Products come in the order (0, 0), (0, 1), ..., (1, 1), ...: the order in which the kernels compute them.
    """
    dims = len(names)
    scores = [Score(name, (j,)) for j, name in enumerate(names)]
    if radius:
        scores.append(Score(RADIUS, tuple(range(dims))))
    if products:
        for i in range(dims):
            for j in range(i if squares else i + 1, dims):
                scores.append(Score(f"{names[i]}*{names[j]}", (i,) if i == j else (i, j)))
    return tuple(scores)


def share_evidence(
    names: Sequence[str],
    scores: Sequence[Score],
    evidence: Sequence[float],
    otherwise: Sequence[float] | None = None,
) -> tuple[tuple[str, float], ...]:
    """The features that drive an alarm, largest first, with weights that sum to 1.

    Args:
        names: of the features.
        scores: the fixed scores.
        evidence: one number >= 0 per score; it is divided equally among the score's features.
        otherwise: weights per feature (>= 0) where no score holds evidence; equal ones where these are 0 too.
    """
    weights = [0.0] * len(names)
    for score, value in zip(scores, evidence, strict=True):
        for j in score.features:
            weights[j] += value / len(score.features)
    total = sum(weights)
    if not total > 0.0:
        weights = list(otherwise) if otherwise is not None else weights
        total = sum(weights)
    if not 0.0 < total < float("inf"):
        weights, total = [1.0] * len(names), float(len(names))
    order = sorted(range(len(names)), key=lambda j: (-weights[j], j))
    return tuple((names[j], weights[j] / total) for j in order)


def raised(
    *, row: int, slot: int, seq: int, crossing: Crossing, evidence: float, standing: Standing, guarantee: Guarantee
) -> Transition:
    """The transition of a score that crossed."""
    return Transition(
        row=row,
        slot=slot,
        kind="raised",
        reason=crossing.score,
        seq=seq,
        evidence=evidence,
        threshold=standing.threshold,
        change_seq=crossing.change_seq,
        change_time=crossing.change_time,
        direction=crossing.direction,
        features=crossing.features,
        guarantee=guarantee.level,
        guarantee_reason=guarantee.reason,
        arl=standing.arl,
        escalation=standing.escalation,
        false_alarms_per_day=standing.false_alarms_per_day,
        explanation=crossing.explanation,
    )


def told(
    *, kind: str, row: int, slot: int, seq: int, reason: str, time: int, standing: Standing, guarantee: Guarantee
) -> Transition:
    """The transition of an alarm that is `cleared`, or a `notice`.

    It has no evidence, direction or features; `change_seq` and `change_time` name the sample at which it came about.
    """
    return Transition(
        row=row,
        slot=slot,
        kind=kind,
        reason=reason,
        seq=seq,
        evidence=0.0,
        threshold=standing.threshold,
        change_seq=seq,
        change_time=time,
        direction="both",
        features=(),
        guarantee=guarantee.level,
        guarantee_reason=guarantee.reason,
        arl=standing.arl,
        escalation=standing.escalation,
        false_alarms_per_day=standing.false_alarms_per_day,
    )


@inline
def advance_runs(
    products: np.ndarray,
    start_seq: np.ndarray,
    start_time: np.ndarray,
    multipliers: np.ndarray,
    n: int,
    seq: int,
    time: int,
) -> None:
    """One step of the runs of n bets, in place.

    Args:
        products: [>= n], product of the multipliers of the current run; a run is over once it is <= 1.
        start_seq: [>= n], number of the run's first sample (uint32: its last 32 bits).
        start_time: [>= n], event time of that sample, milliseconds.
        multipliers: float64[>= n], what each bet pays on this sample.
        n: number of bets.
        seq: number of this sample.
        time: its event time.
    """
    for k in range(n):
        over = products[k] <= 1.0
        start_seq[k] = seq if over else start_seq[k]
        start_time[k] = time if over else start_time[k]
        products[k] = (1.0 if over else products[k]) * multipliers[k]
