"""From a configured kind of model to its bank: kinds, options, pairs out of one stream, the detector of the scores."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from kstream_worker.codec import Binding
from kstream_worker.config import Config
from kstream_worker.config.kinds import BUILT_IN, RATIO, facts, third_party
from kstream_worker.detectors.modelled import ModelBank
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.tally import Tally
from kstream_worker.errors import ConfigError
from kstream_worker.models.contract import Model, ModelKind, Shape
from kstream_worker.models.kinds import KINDS
from kstream_worker.models.lagged import Lagged


def is_ratio(config: Config) -> bool:
    """Whether the models are likelihood ratios, which have banks of their own."""
    return config.model.kind == RATIO


def takes_missing(config: Config) -> bool:
    """Whether a sample may lack values."""
    return facts(config.model.kind).missing


def options_of(config: Config) -> dict[str, object]:
    """Settings of the configured kind: its own section, or the free table of a kind of another package."""
    name = config.model.kind
    section = getattr(config, name, None) if name in BUILT_IN else None  # others may be called as any section is
    if isinstance(section, msgspec.Struct):
        return {name: getattr(section, name) for name in section.__struct_fields__}
    return dict(config.model.options)


def build_model_bank(config: Config, binding: Binding) -> ModelBank:
    """An empty bank of the configured kind.

    Raises:
        ConfigError: the kind cannot be loaded, or refuses its options or samples.
    """
    name, lagged = config.model.kind, config.pairing.mode == "lag"
    try:
        kind = _kind(name)
        y_names = binding.names
        x_names = () if binding.x is None else binding.x.names
        model = kind.build(Shape(y_names if lagged else x_names, y_names, config.model.seed), options_of(config))
        if lagged:
            model = _lagged(config, model, len(y_names), missing=kind.missing)
        seen = Shape(x_names, y_names, config.model.seed)
        return ModelBank(model, _detector(config, model), seen, missing=kind.missing)
    except ValueError as error:
        raise ConfigError(f"`model.kind` {name}: {error}") from error


def warm_up_detector() -> None:
    """Compile the detector of scores, or load it from its cache: a model may hold its scores back for long."""
    bank = RankBank(1, alternative="greater", explained=False)
    n = 1200
    scores = np.random.default_rng(0).standard_normal((n, 1))
    bank.follow(np.full(n, bank.allocate(b""), dtype=np.int64), scores, np.zeros(n, dtype=np.int64))


def _kind(name: str) -> ModelKind:
    if name in KINDS:
        return KINDS[name]
    kind: ModelKind = third_party(name)
    return kind


def _lagged(config: Config, model: Model, dims: int, *, missing: bool) -> Lagged:
    gap_ms = max(1, round(1000 * config.pairing.max_gap)) if config.pairing.max_gap > 0 else None
    return Lagged(model, dims, lag=config.pairing.lag, max_gap_ms=gap_ms, missing=missing)


def _detector(config: Config, model: Model) -> RankBank | Tally:
    if not model.watched:
        return Tally()
    given = config.detector
    optional: dict[str, Any] = {} if given.warmup is None else {"warmup": given.warmup}
    return RankBank(
        len(model.watched),
        feature_names=model.watched,
        arl=given.stated_arl,
        per_day=given.shared,
        dependence=given.dependence,
        profile=given.profile,
        on_alarm=given.on_alarm,
        dead_time_ms=round(1000 * given.dead_time),
        escalation=given.escalation or 1.0,
        escalation_decay_ms=round(1000 * given.escalation_decay),
        alternative="greater",
        spikes=False,  # one sample that fits badly is no change of what the model describes
        transform="none",
        explained=False,  # the samples of a key are not what the detector sees
        seed=config.model.seed,
        **optional,
    )
