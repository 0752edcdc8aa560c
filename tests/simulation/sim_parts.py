"""Workers as the composition root wires them, of parts that are made once for many simulations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog
from sim_bank import TinyBank
from sim_scenario import Scenario
from sim_script import POISON, START_MS, TOPIC

from kstream_worker import app
from kstream_worker.bus.fake import FakeBroker, SimulatedCrash
from kstream_worker.codec.outputs import OutputEncoder
from kstream_worker.config import Config, from_dict
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.http import Status
from kstream_worker.ports import Bank, Cluster
from kstream_worker.records import FloatMatrix, IntColumn, Scores
from kstream_worker.worker import journal
from kstream_worker.worker.decode import RecordDecoder
from kstream_worker.worker.loop import Worker

GROUP = "drift"
OUTPUTS = ("drift-estimates", "drift-alarms", "drift-dead-letters")
STATE = "drift-state"
_BASE = from_dict(
    {
        "app": {"id": "drift"},
        "bus": {"kafka": {"bootstrap_servers": ["fake:9092"]}},
        "input": {"topic": TOPIC, "y": "y", "dims": 1, "timestamp": "ts"},
        "detector": {"arl": 20, "warmup": 20, "dependence": "none"},
        "gate": {"max_reject_ratio": 1.0, "max_consecutive_rejects": 1_000_000},
        "commit": {"interval": 0.2, "timeout": 1.0, "give_up": 1e9},
        "worker": {"shutdown_grace": 20.0, "progress_timeout": 1e6},
        "state": {"max_future_skew": 0.1},
    }
)


def config_of(scenario: Scenario, identity: str, arl: float) -> Config:
    """The configuration of a scenario, with values that its checks would not let pass for a real bus."""
    change = msgspec.structs.replace
    return change(
        _BASE,
        bus=change(_BASE.bus, kafka=change(_BASE.bus.kafka, group_instance_id=identity)),
        detector=change(_BASE.detector, arl=arl, silence=scenario.silence_ms / 1000),
        commit=change(_BASE.commit, max_bytes=scenario.max_bytes),
        state=change(
            _BASE.state,
            ttl=scenario.ttl_ms / 1000,
            max_keys=scenario.max_keys,
            interval=scenario.interval_s,
            replay_records=scenario.replay_records,
            format=scenario.format,
        ),
    )


class Hazards:
    """What goes wrong in models: at the next update of a process, and at records that end it."""

    def __init__(self) -> None:
        self.broken: set[str] = set()

    def meet(self, identity: str, y: FloatMatrix) -> None:
        """An update of these values.

        Raises:
            SimulatedCrash: the process dies of one.
            ZeroDivisionError: a passing fault of a model.
        """
        if (y[:, 0] == POISON).any():
            raise SimulatedCrash("a record that no process survives")
        if identity in self.broken:
            self.broken.discard(identity)
            raise ZeroDivisionError("a model failed")


class HazardousBank:
    """A bank in which hazards are met before anything changes."""

    def __init__(self, bank: Bank, hazards: Hazards, identity: str) -> None:
        self._bank = bank
        self._hazards = hazards
        self._identity = identity

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bank, name)

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """As the bank's own."""
        self._hazards.meet(self._identity, y)
        return self._bank.update(slots, x, y, times)


def bank_of(scenario: Scenario, arl: float) -> Bank:
    """A bank without hazards."""
    return RankBank(1, arl=arl, warmup=20, dependence="none") if scenario.real else TinyBank(arl)


def broker_of(scenario: Scenario) -> FakeBroker:
    """A broker with all topics, empty."""
    broker = FakeBroker(poll_cost_s=0.05)
    for topic in (TOPIC, *OUTPUTS, STATE):
        broker.create_topic(topic, partitions=scenario.script.partitions)
    return broker


def worker_of(scenario: Scenario, broker: FakeBroker, identity: str, arl: float, poll_sizes: tuple[int, ...]) -> Worker:
    """A worker that has not started; to be made and used within `simulated_parts`."""
    return app.build_worker(
        config_of(scenario, identity, arl),
        bus=broker.bus(topic=TOPIC, group=GROUP, identity=identity, poll_sizes=poll_sizes),
        board=Status(1e9, clock=broker.clock),
        clock=broker.clock,
        sleep=broker.clock.sleep,
        now_ms=lambda: START_MS,
    )


@contextmanager
def simulated_parts(scenario: Scenario, hazards: Hazards | None) -> Iterator[None]:
    """The composition root builds banks that meet hazards, keeps what is costly, and writes snapshots at a low pace.

    Logs are off.
    """

    def build_bank(config: Config) -> Bank:
        bank = bank_of(scenario, config.detector.arl)
        return bank if hazards is None else HazardousBank(bank, hazards, config.bus.kafka.group_instance_id or "")

    patches: list[tuple[Any, str, Any]] = [
        (app, "build_bank", build_bank),
        (app, "build_encoder", _encoder_of),
        (app, "build_decoder", _decoder_of),
        (journal, "FLOOR_BYTES_S", scenario.floor_bytes_s),
    ]
    kept = [getattr(module, name) for module, name, _ in patches]
    for module, name, value in patches:
        setattr(module, name, value)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.reset_defaults()
        for (module, name, _), value in zip(patches, kept, strict=True):
            setattr(module, name, value)


_DECODER = app.build_decoder(_BASE)
_ENCODERS: dict[int, OutputEncoder] = {}
_build_encoder: Callable[[Config, Cluster, Bank], OutputEncoder] = app.build_encoder


def _encoder_of(config: Config, cluster: Cluster, bank: Bank) -> OutputEncoder:
    key = cluster.partition_count(TOPIC) or 0
    if key not in _ENCODERS:
        _ENCODERS[key] = _build_encoder(config, cluster, bank)
    return _ENCODERS[key]


def _decoder_of(config: Config) -> RecordDecoder:
    del config  # it is the same for all of them
    return _DECODER
