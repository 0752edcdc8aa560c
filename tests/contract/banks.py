"""The banks that the contract suite holds to `ports.Bank`. To add one: a line in `BANKS`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from models import NAMES, Linear, Unwatched, forecast

from kstream_worker.detectors.modelled import ModelBank
from kstream_worker.detectors.pairs import PairBank
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.reference import ReferenceBank
from kstream_worker.detectors.tally import Tally
from kstream_worker.models import OlreBank
from kstream_worker.models.contract import Model, Shape
from kstream_worker.models.lagged import Lagged
from kstream_worker.ports import Bank

DIMS = 2
SINGLE, PAIR = Shape((), NAMES, 0), Shape(("u", "v"), NAMES, 0)
REFERENCE = np.random.default_rng(8).normal(size=(50, DIMS))


@dataclass(frozen=True)
class Case:
    """One kind of bank under test.

    Attributes:
        make: a fresh bank of `DIMS` features with this seed; a short warm-up keeps the suite quick.
        paired: whether it takes x.
        other: a fresh bank of another configuration, whose snapshots must be refused.
    """

    make: Callable[[int], Bank]
    paired: bool
    other: Callable[[], Bank]


def modelled(model: Model, shape: Shape = SINGLE, **settings: Any) -> ModelBank:
    """Any model with a detector of its scores that is armed early."""
    settings = {"warmup": 20, "dependence": "none", "arl": 20.0, **settings}
    watch = RankBank(len(model.watched), feature_names=model.watched, alternative="greater", **settings)
    return ModelBank(model, watch, shape)


BANKS: dict[str, Case] = {
    "olre-rls": Case(
        lambda seed: OlreBank(DIMS, warmup=20, atoms=12, seed=seed), True, lambda: OlreBank(DIMS, warmup=21, atoms=12)
    ),
    "olre-rls-forgetting": Case(
        lambda seed: OlreBank(DIMS, warmup=20, atoms=12, gamma=0.99, seed=seed),
        True,
        lambda: OlreBank(DIMS, warmup=20, atoms=12),
    ),
    "olre-sgd": Case(
        lambda seed: OlreBank(DIMS, warmup=20, atoms=12, estimator="sgd", seed=seed),
        True,
        lambda: OlreBank(DIMS, warmup=20, atoms=12),
    ),
    "pairs": Case(
        lambda seed: PairBank(DIMS, arl=1e3, warmup=20, atoms=12, seed=seed),
        True,
        lambda: PairBank(DIMS, arl=1e3, warmup=21, atoms=12),
    ),
    "pairs-hold": Case(
        lambda seed: PairBank(DIMS, arl=1e3, warmup=20, atoms=12, on_alarm="hold", dead_time_ms=9000, seed=seed),
        True,
        lambda: PairBank(DIMS, arl=1e3, warmup=20, atoms=12),
    ),
    "ranks": Case(
        lambda seed: RankBank(DIMS, arl=20.0, warmup=20, dependence="none", seed=seed),
        False,
        lambda: RankBank(DIMS, arl=20.0, warmup=21, dependence="none"),
    ),
    "pairs-escalating": Case(
        lambda seed: PairBank(DIMS, arl=1e3, warmup=20, atoms=12, escalation=1.5, escalation_decay_ms=9000, seed=seed),
        True,
        lambda: PairBank(DIMS, arl=1e3, warmup=20, atoms=12, escalation=1.5, escalation_decay_ms=9001),
    ),
    "ranks-per-day": Case(
        lambda seed: RankBank(DIMS, arl=0.05, per_day=True, warmup=20, dependence="none", escalation=1.5, seed=seed),
        False,
        lambda: RankBank(DIMS, arl=20.0, warmup=20, dependence="none", escalation=1.5),
    ),
    "ranks-escalating": Case(
        lambda seed: RankBank(
            DIMS,
            arl=20.0,
            warmup=20,
            dependence="none",
            on_alarm="hold",
            escalation=3.0,
            escalation_decay_ms=40_000,
            seed=seed,
        ),
        False,
        lambda: RankBank(
            DIMS, arl=20.0, warmup=20, dependence="none", on_alarm="hold", escalation=2.0, escalation_decay_ms=40_000
        ),
    ),
    "ranks-compact": Case(
        lambda seed: RankBank(DIMS, arl=20.0, warmup=20, dependence="none", profile="compact", seed=seed),
        False,
        lambda: RankBank(DIMS, arl=20.0, warmup=20, dependence="none"),
    ),
    "ranks-auto-hold": Case(
        lambda seed: RankBank(DIMS, arl=20.0, warmup=60, on_alarm="hold", dead_time_ms=9000, seed=seed),
        False,
        lambda: RankBank(DIMS, arl=20.0, warmup=60),
    ),
    "ranks-season": Case(
        lambda seed: RankBank(DIMS, arl=20.0, warmup=60, dependence="whiten", period=(30_000, 70_000), seed=seed),
        False,
        lambda: RankBank(DIMS, arl=20.0, warmup=60, dependence="whiten", period=(30_000,)),
    ),
    "ranks-block": Case(
        lambda seed: RankBank(DIMS, arl=20.0, warmup=60, dependence="block", seed=seed),
        False,
        lambda: RankBank(DIMS, arl=20.0, warmup=60, dependence="thin"),
    ),
    "reference": Case(
        lambda seed: ReferenceBank(DIMS, arl=20.0, samples=60, delta=0.4, dead_time_ms=9000, seed=seed),
        False,
        lambda: ReferenceBank(DIMS, arl=20.0, samples=60, delta=0.3, dead_time_ms=9000),
    ),
    "reference-escalating": Case(
        lambda seed: ReferenceBank(DIMS, arl=20.0, samples=60, delta=0.4, escalation=2.0, seed=seed),
        False,
        lambda: ReferenceBank(DIMS, arl=20.0, samples=60, delta=0.4),
    ),
    "reference-file": Case(
        lambda seed: ReferenceBank(
            DIMS, arl=20.0, samples=60, delta=0.4, references={b"key": REFERENCE}, end_ms=40_000, seed=seed
        ),
        False,
        lambda: ReferenceBank(DIMS, arl=20.0, samples=60, delta=0.4, references={b"key": REFERENCE[1:]}, end_ms=40_000),
    ),
    "modelled": Case(
        lambda seed: modelled(forecast(seed), seed=seed),
        False,
        lambda: modelled(forecast(7, 21.0), seed=7),
    ),
    "modelled-pairs": Case(
        lambda seed: modelled(Linear(DIMS), PAIR, on_alarm="hold", dead_time_ms=9000, seed=seed),
        True,
        lambda: modelled(Linear(DIMS), PAIR, seed=7),
    ),
    "modelled-lag": Case(
        lambda seed: modelled(Lagged(Linear(DIMS), DIMS, lag=2), seed=seed),
        False,
        lambda: modelled(Lagged(Linear(DIMS), DIMS, lag=3), seed=7),
    ),
    "modelled-unwatched": Case(
        lambda seed: ModelBank(Unwatched(DIMS), Tally(), PAIR),
        True,
        lambda: ModelBank(Unwatched(DIMS, 0.4), Tally(), PAIR),
    ),
}
