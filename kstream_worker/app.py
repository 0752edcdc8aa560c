"""The composition root: a configuration in, a wired worker out. The only module that names concrete adapters."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import structlog

from kstream_worker import __version__
from kstream_worker.bus.files import files_bus
from kstream_worker.codec import DECODERS, Binding
from kstream_worker.codec.outputs import OutputEncoder, OutputSettings, Topic
from kstream_worker.commissioning import read_references
from kstream_worker.config import Config
from kstream_worker.config.detector import DetectorConfig
from kstream_worker.config.kinds import facts
from kstream_worker.config.units import parse_duration
from kstream_worker.detectors.modelled import ModelBank
from kstream_worker.detectors.pairs import PairBank
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.reference import ReferenceBank
from kstream_worker.errors import ConfigError
from kstream_worker.gate import Gate, RejectPolicy
from kstream_worker.http import Status
from kstream_worker.measures import Telemetry
from kstream_worker.modelling import build_model_bank, is_ratio, options_of, takes_missing, warm_up_detector
from kstream_worker.models.bank import fingerprint_of
from kstream_worker.numerics.version import ARITHMETIC
from kstream_worker.pairing import pairing_of
from kstream_worker.ports import Bank, Bus, Cluster
from kstream_worker.records import TopicPartition
from kstream_worker.state.ledger import Ledger, LedgerSettings
from kstream_worker.state.opening import StateIdentity
from kstream_worker.worker.committer import CommitPolicy
from kstream_worker.worker.decode import RecordDecoder
from kstream_worker.worker.journal import SnapshotPolicy
from kstream_worker.worker.loop import Worker
from kstream_worker.worker.opener import OpenPolicy
from kstream_worker.worker.settings import LoopSettings
from kstream_worker.worker.task import Task

log = structlog.get_logger(__name__)

T = TypeVar("T")


def wall_clock_ms() -> int:
    """Milliseconds since the epoch, for `lag_s` alone: no result depends on it."""
    return time.time_ns() // 1_000_000


def binding_of(config: Config) -> Binding:
    """The bound fields of the input.

    Raises:
        ConfigError: a path is malformed, or sides do not fit together.
    """
    given, kind = config.input, facts(config.model.kind)
    return Binding.of(
        x=given.x or None,
        y=given.y or None,
        dims=given.dims,
        timestamp=given.timestamp or None,
        key=given.key or None,
        same_space=kind.same_space,
        missing=kind.missing,
    )


def sample_dims(config: Config) -> tuple[int | None, int]:
    """Features of the two sides that the bank is given; None for the first where it takes single samples."""
    binding = binding_of(config)
    return None if binding.x is None else binding.x.dims, binding.y.dims


def build_bank(config: Config) -> Bank:
    """An empty bank of the configured detector."""
    if not is_ratio(config):
        return build_model_bank(config, binding_of(config))
    names = binding_of(config).names
    detector = config.detector
    common: dict[str, Any] = {
        "feature_names": names,
        "arl": detector.stated_arl,
        "dead_time_ms": round(1000 * detector.dead_time),
        "escalation": detector.escalation or 1.0,
        "escalation_decay_ms": round(1000 * detector.escalation_decay),
        "seed": config.model.seed,
    }
    try:
        if config.pairing.mode == "reference":
            return ReferenceBank(len(names), **reference_settings(config), **common)
        common |= {"on_alarm": detector.on_alarm, "per_day": detector.shared}
        if detector.warmup is not None:
            common["warmup"] = detector.warmup
        if config.pairing.mode == "explicit":
            tested = detector.dependence != "none"
            return PairBank(len(names), test=tested, alpha=config.model.alpha, atoms=config.model.atoms, **common)
        return RankBank(
            len(names),
            dependence=detector.dependence,
            period=_period_of(detector),
            time_zone=detector.time_zone,
            profile=detector.profile,
            spikes=detector.spikes,
            transform=detector.transform,
            **common,
        )
    except ValueError as error:
        raise ConfigError(f"`model` and `detector`: {error}") from error


def _period_of(detector: DetectorConfig) -> tuple[int, ...] | Literal["none", "auto"]:
    if not detector.period:
        return "none"
    if detector.period == ("auto",):
        return "auto"
    return tuple(round(1000 * parse_duration(text)) for text in detector.period)


def reference_settings(config: Config) -> dict[str, Any]:
    """What `ReferenceBank` takes of section `reference`; reads the file, where there is one.

    Raises:
        ConfigError: the file is not usable.
    """
    given = config.reference
    references = None
    if given.file:
        references = read_references(given.file, binding_of(config), given.samples, config.input.max_record_bytes)
    return {
        "samples": given.samples,
        "delta": given.delta,
        "references": references,
        "start_ms": given.start_ms(),
        "end_ms": given.end_ms(),
        "test": config.detector.dependence != "none",
    }


def state_identity(config: Config) -> StateIdentity:
    """What state must have been written by to be continued."""
    given, state = config.input, config.state
    shaping = {
        "input": [given.format, given.x, given.y, given.dims, given.timestamp, given.key, given.null_key],
        "limits": [given.null_key_buckets, given.max_record_bytes],
        "pairing": config.pairing.mode,
        "life": [state.ttl, state.max_keys, state.max_future_skew],
    }
    if not is_ratio(config):
        shaping["model"] = [config.model.kind, options_of(config)]
    return StateIdentity(
        model_epoch=config.app.model_epoch,
        pipeline=fingerprint_of(shaping),
        bank=build_bank(config).fingerprint,
        numerics=ARITHMETIC,
        arl=config.detector.stated_arl,
        release=__version__,
    )


def ledger_settings(config: Config) -> LedgerSettings:
    """What shapes the life of keys."""
    state = config.state
    return LedgerSettings(
        ttl_ms=round(1000 * state.ttl),
        max_keys=state.max_keys,
        max_skew_ms=round(1000 * state.max_future_skew),
        silence_ms=round(1000 * config.detector.silence),
    )


def build_decoder(config: Config) -> RecordDecoder:
    """Codec, gate and pairing of one partition."""
    binding = binding_of(config)
    given = config.input
    gate = Gate(
        max_value_bytes=given.max_record_bytes,
        null_key_slots=given.null_key_buckets if given.null_key == "by_offset" else None,
        missing=takes_missing(config),
    )
    pairing = pairing_of(config.pairing.mode, two_sided=binding.x is not None, feature_names=binding.names)
    return RecordDecoder(DECODERS[given.format](binding), gate, pairing)


def build_limit(config: Config) -> RejectPolicy:
    """When so much of one partition is refused that work must stop."""
    return RejectPolicy(
        max_reject_ratio=config.gate.max_reject_ratio,
        window_records=config.gate.window_records,
        max_consecutive_rejects=config.gate.max_consecutive_rejects,
    )


def build_bus(config: Config) -> Bus:
    """The adapters of the configured bus; connects to nothing yet."""
    if config.bus.kind == "files":
        files = config.bus.files
        return files_bus(
            "-" if files.inputs == ("-",) else list(files.inputs),
            None if files.output_dir == "-" else Path(files.output_dir),
            format=files.format,
            key_column=files.key_column or None,
            topic=config.input.topic,
            state_topic=config.state.topic,
            max_record_bytes=config.input.max_record_bytes,
        )
    kafka = config.bus.kafka
    tables = {
        "common": dict(kafka.common),
        "consumer": dict(kafka.consumer),
        "producer": dict(kafka.producer),
    }
    # With a static name, a restarted process ends at once what a killed one left open; else the coordinator does it,
    # when the transaction times out.
    identity = kafka.group_instance_id or secrets.token_hex(8)
    names: dict[str, Any] = {
        "topic": config.input.topic,
        "group_id": kafka.group_id,
        "transactional_id": f"{config.app.id}.{identity}",
        "instance_id": kafka.group_instance_id,
        "transactional_prefix": f"{config.app.id}.",
    }
    # Imported here: a client is loaded only where it is used.
    if config.bus.client == "confluent":
        from kstream_worker.bus.confluent import ConfluentSettings, confluent_bus

        return confluent_bus(ConfluentSettings(list(kafka.bootstrap_servers), **tables), **names)
    from kstream_worker.bus.kafka_python import KafkaSettings, kafka_bus

    return kafka_bus(KafkaSettings(list(kafka.bootstrap_servers), **tables), **names)


def output_topics(config: Config) -> tuple[str, str, str]:
    """Topics of estimates, alarms and dead letters."""
    return config.output.estimates, config.output.alarms, config.output.dead_letters


def build_encoder(config: Config, cluster: Cluster, bank: Bank) -> OutputEncoder:
    """The encoder of outputs; asks the bus how many partitions each topic has.

    Raises:
        ConfigError: a topic does not exist.
    """
    counts = {name: cluster.partition_count(name) for name in (config.input.topic, *output_topics(config))}
    missing = [name for name, count in counts.items() if not count]
    if missing:
        raise ConfigError(
            f"topics do not exist: {', '.join(missing)}. Create them (`kstream-worker topics --create`), or correct "
            f"the names."
        )
    estimates, alarms, dead_letters = (Topic(name, counts[name] or 0) for name in output_topics(config))
    return OutputEncoder(
        OutputSettings(
            app_id=config.app.id,
            model_epoch=config.app.model_epoch,
            input_partitions=counts[config.input.topic] or 0,
            estimates=estimates,
            alarms=alarms,
            dead_letters=dead_letters,
            model=None if is_ratio(config) else config.model.kind,
            columns=bank.columns if isinstance(bank, ModelBank) else (),
            estimate_every=config.output.estimate_every,
            max_dead_letter_bytes=config.output.max_dead_letter_bytes,
        )
    )


def loop_settings(config: Config, *, leave: bool = False, discard: bool = False, drain: bool = False) -> LoopSettings:
    """What the loop needs to know of the configuration."""
    start = config.input.start_ms()
    state = config.state
    return LoopSettings(
        topic=config.input.topic,
        opening=OpenPolicy(state.topic, state_identity(config), state.on_offset_mismatch, discard),
        snapshots=SnapshotPolicy(
            state.topic, state.interval, state.replay_records, config.commit.max_bytes, state.format
        ),
        name=config.bus.kafka.group_instance_id or "",
        start=config.input.start if start is None else start,
        commit=CommitPolicy(
            interval_s=config.commit.interval,
            max_bytes=config.commit.max_bytes,
            timeout_s=config.commit.timeout,
            give_up_s=config.commit.give_up,
        ),
        kinds=dict(zip(output_topics(config), ("estimate", "alarm", "dead_letter"), strict=True)),
        grace_s=config.worker.shutdown_grace,
        leave=leave,
        drain=drain,
        progress_timeout_s=config.worker.progress_timeout,
        fleet_keys=config.detector.fleet_keys,
    )


def build_worker(
    config: Config,
    *,
    bus: Bus | None = None,
    telemetry: Telemetry | None = None,
    board: Status | None = None,
    leave: bool = False,
    discard: bool = False,
    drain: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> Worker:
    """A wired worker that has not started yet.

    Args:
        config: what to build.
        bus: adapters; those of the configuration by default.
        telemetry: measurements; none by default.
        board: what the http endpoints show.
        leave: leave the group at the end even as a static member.
        discard: models of an older `app.model_epoch` may be discarded.
        drain: read nothing new; bring all models up to date, snapshot them all, and end.
        clock: monotonic seconds.
        sleep: waits that many seconds.
        now_ms: wall clock in milliseconds.
    """
    bus = bus or build_bus(config)
    telemetry = telemetry or Telemetry()
    board = board or Status(config.worker.progress_timeout)
    sample_bank = build_bank(config)
    known = 0  # partitions of the input topic when the encoder was made
    encoder: OutputEncoder

    def look_up(cluster: Cluster) -> tuple[int, OutputEncoder]:
        return cluster.partition_count(config.input.topic) or 0, build_encoder(config, cluster, sample_bank)

    def make_task(partition: TopicPartition) -> Task:
        nonlocal known, encoder
        if partition.partition >= known:  # at first, and when the topic has grown
            known, encoder = with_cluster(bus, look_up)
        return Task(
            partition,
            build_decoder(config),
            build_bank(config),
            encoder,
            build_limit(config),
            Ledger(ledger_settings(config)),
            board,
            telemetry,
            clock,
            now_ms,
        )

    settings = loop_settings(config, leave=leave, discard=discard, drain=drain)
    return Worker(bus, make_task, board, telemetry, settings, clock, sleep, now_ms)


def with_cluster(bus: Bus, ask: Callable[[Cluster], T]) -> T:
    """Ask something about the bus, and close what that needed."""
    cluster = bus.cluster()
    try:
        return ask(cluster)
    finally:
        cluster.close()


def warm_up_kernels(config: Config) -> None:
    """Compile all kernels, or load them from their cache, before the group is joined: a rebalance must not wait for
    that.
    """
    bank = build_bank(config)
    rng = np.random.default_rng(0)
    # Beyond any default warm-up and any reference, so that an armed key runs too.
    n, (x_dims, dims) = max(1200, config.reference.samples + 400), sample_dims(config)
    slots = np.full(n, bank.allocate(b"warm-up"), dtype=np.int64)
    x = None if x_dims is None else rng.standard_normal((n, x_dims))
    y = rng.standard_normal((n, dims))
    y[-200:] += 6.0
    bank.update(slots, x, y, np.arange(n, dtype=np.int64) + (config.reference.start_ms() or 0))
    bank.restore(int(slots[0]), bank.snapshot(int(slots[0])))
    if not is_ratio(config):
        warm_up_detector()
