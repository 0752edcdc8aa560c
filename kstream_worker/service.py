"""The service around a worker: what is checked before it starts, how it is served, how it is told to stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

import structlog

from kstream_worker import __version__, app
from kstream_worker.config import Config
from kstream_worker.errors import EXIT_OK, ConfigError, Retry
from kstream_worker.http import Status, StatusServer
from kstream_worker.ports import Bus, Cluster
from kstream_worker.state.checks import check_state_topic, largest_snapshot_bytes
from kstream_worker.telemetry import logs
from kstream_worker.telemetry.families import COUNTERS, PREFIX
from kstream_worker.telemetry.metrics import Metrics
from kstream_worker.worker.journal import FLOOR_BYTES_S
from kstream_worker.worker.loop import Worker
from kstream_worker.worker.patience import Patience

log = structlog.get_logger(__name__)

_RESTORE_BYTES_S = 100e6  # rough: a client's reading, decoding and copying on one core
_CONNECT_S = 60.0  # how long a bus may be away when the process starts


def check(config: Config, bus: Bus | None = None, warn: Callable[[str], None] | None = None) -> list[str]:
    """What is wrong with the configuration, the topics and the rights; empty when a worker could run.

    Args:
        config: what to check.
        bus: its adapters, where they are built already.
        warn: told what is not wrong, but should be known; the log by default.

    Raises:
        Retry: the bus does not answer.
    """
    problems: list[str] = []
    for build in (app.build_bank, app.binding_of):
        try:
            build(config)
        except ConfigError as error:
            problems.append(str(error))
            break
    try:
        problems += app.with_cluster(
            bus or app.build_bus(config), lambda cluster: _check_topics(config, cluster, warn or log.warning)
        )
    except ConfigError as error:
        problems.append(str(error))
    return problems


def _check_topics(config: Config, cluster: Cluster, warn: Callable[[str], None]) -> list[str]:
    topic, state = config.input.topic, config.state.topic
    found = check_state_topic(
        cluster,
        input_topic=topic,
        state_topic=state,
        largest_snapshot_bytes=largest_snapshot_bytes(app.build_bank(config).bytes_per_key),
    )
    settings = cluster.topic_config(topic) if cluster.partition_count(topic) else {}
    for warning in (*found.warnings, *_clocks(config, settings), *_compaction(config, settings)):
        warn(warning)
    known = [state] if cluster.partition_count(state) else []
    rights = cluster.check_rights(inputs=[topic, *known], outputs=[*app.output_topics(config), *known])
    return [*rights, *found.problems]


def _clocks(config: Config, settings: Mapping[str, str]) -> Iterator[str]:
    """A device that stamps its records from a wrong clock would advance the clock of all."""
    allowed_ms = float(settings.get("message.timestamp.after.max.ms", "inf"))
    broker_stamps = settings.get("message.timestamp.type") == "LogAppendTime"
    if settings and config.state.ttl and not broker_stamps and allowed_ms > 1000 * config.state.max_future_skew:
        yield (
            f"input topic '{config.input.topic}': producers stamp its records, with any time: one device with a fast "
            "clock can expire all other keys of its partition. Set message.timestamp.type=LogAppendTime or a lower "
            "message.timestamp.after.max.ms on the topic, or state.ttl to 0"
        )


def _compaction(config: Config, settings: Mapping[str, str]) -> Iterator[str]:
    """What a killed process read is read again, as it was: compaction leaves the newest record of each key alone."""
    if "compact" in settings.get("cleanup.policy", ""):
        yield (
            f"input topic '{config.input.topic}' is compacted: records that must be read again after a crash may be "
            "gone, and models then lack them without a word; so may records that were not read yet. Set "
            "cleanup.policy=delete, or a min.compaction.lag.ms longer than the worker is ever down"
        )


def run(config: Config, *, leave: bool = False, discard: bool = False, drain: bool = False) -> int:
    """Run a worker until it is told to stop, or its input ends.

    Returns:
        the exit code 0.

    Raises:
        Fatal: no way on (exit 1), or the configuration is wrong (exit 78).
    """
    telemetry = config.telemetry
    logs.configure(telemetry.log_level, telemetry.log_format, config.secrets())
    log.info("starting", version=__version__, config=config.redacted())
    stop = StopSignals()
    app.warm_up_kernels(config)
    status = Status(config.worker.progress_timeout)
    metrics = Metrics(__version__, status)
    server = None
    if telemetry.port is not None:
        server = StatusServer(status, metrics.render, telemetry.host, telemetry.port)
        log.info("serving metrics and health", host=telemetry.host, port=server.port)
    try:
        bus = app.build_bus(config)
        for note in bus.notes:
            log.warning(note)
        _require_bus(config, bus, stop)
        if stop.received:
            log.info("stopped", why="asked to stop before it began")
        else:
            _say_bounds(config)
            worker = app.build_worker(
                config, bus=bus, telemetry=metrics, board=status, leave=leave, discard=discard, drain=drain
            )
            stop.stops(worker)
            worker.run()
            _say_published(metrics)
    finally:
        if server is not None:
            server.close()
    return EXIT_OK


def _say_published(metrics: Metrics) -> None:
    """What came of it: a run over a file may end well with every record refused."""
    name = f"{PREFIX}published_records_total"
    kinds = [kind for (kind,) in COUNTERS["published_records"].series()]
    log.info("published", **{kind: int(metrics.registry.get_sample_value(name, {"kind": kind}) or 0) for kind in kinds})


def _say_bounds(config: Config) -> None:
    """What a partition may come to cost, in numbers for whoever plans for it."""
    key_bytes, most = app.build_bank(config).bytes_per_key, config.state.max_keys
    log.info(
        "bounds",
        bytes_per_key=key_bytes,
        most_keys_of_a_partition=most,
        most_model_bytes_of_a_partition=key_bytes * most,
        snapshot_bytes_s=FLOOR_BYTES_S,
        most_records_to_read_again=config.state.replay_records,
        seconds_to_restore_10000_keys=round(10_000 * key_bytes / _RESTORE_BYTES_S, 1),
    )


def _require_bus(config: Config, bus: Bus, stop: StopSignals) -> None:
    """Wait a while for the bus, then insist on topics and rights."""
    patience = Patience(time.monotonic, _CONNECT_S, 0.5, "Check bus.kafka.bootstrap_servers and that the brokers run.")
    while not stop.received:
        try:
            problems = check(config, bus)
        except Retry as error:
            pause_s = patience.failed(str(error))
            log.warning("the bus does not answer yet", why=str(error), in_s=pause_s)
            time.sleep(pause_s)
            continue
        if problems:
            raise ConfigError("\n".join(problems))
        return


class StopSignals:
    """SIGTERM and SIGINT from the start of the process on: the first finishes and commits, a second forces."""

    def __init__(self) -> None:
        self.received = False
        self._worker: Worker | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def stops(self, worker: Worker) -> None:
        """Stop this worker at the first signal, also at one that came already."""
        self._worker = worker
        if self.received:
            worker.request_stop()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.received:
            os._exit(128 + number)  # what was not committed is done again by the next process
        self.received = True
        if self._worker is not None:
            self._worker.request_stop()
