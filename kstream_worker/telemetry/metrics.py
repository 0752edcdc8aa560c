"""Metrics of one worker process, on a registry of its own; `families` lists them."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from kstream_worker.measures import Telemetry
from kstream_worker.records import FloatColumn, TopicPartition
from kstream_worker.telemetry.families import COUNTERS, GAUGES, HISTOGRAMS, PREFIX, PROCESS_GAUGES
from kstream_worker.telemetry.histogram import ColumnHistogram

_MAX_REASONS = 64  # reasons are fixed words; if that is ever broken, the series stay bounded


class Health(Protocol):
    """What is known about the loop beside the counts."""

    def assigned(self) -> int:
        """Partitions of this process."""
        ...

    def is_ready(self) -> bool:
        """Whether all of them are being read."""
        ...

    def heartbeat_age_s(self) -> float:
        """Seconds since the loop last turned."""
        ...


Labels = tuple[str, ...]


class Metrics(Telemetry, Collector):
    """The worker's `Telemetry` as Prometheus metrics; safe to read from another thread.

    Args:
        version: shown in `build_info`.
        health: the state of the loop; left out of the metrics where None.
        registry: where to register; a new one by default, never the library's global one.
    """

    def __init__(self, version: str, health: Health | None = None, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._version = version
        self._health = health
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = {
            name: dict.fromkeys(about.series(), 0.0) for name, about in COUNTERS.items()
        }
        self._gauges: dict[str, dict[Labels, float]] = {name: {} for name in GAUGES}
        self._histograms: dict[str, dict[Labels, ColumnHistogram]] = {
            name: {labels: ColumnHistogram(about.bounds) for labels in about.series()}
            for name, about in HISTOGRAMS.items()
        }
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    # -- what the worker tells --

    def records(self, partition: TopicPartition, n: int) -> None:
        """Records read from the input, before the gate."""
        self._add("records", n, *_labels(partition))

    def rejects(self, reason: str, n: int) -> None:
        """Records that the gate refused, by its fixed word."""
        known = self._counts["rejected_records"]
        word = reason if (reason,) in known or len(known) < _MAX_REASONS else "other"
        self._add("rejected_records", n, word)

    def fallback_timestamps(self, n: int) -> None:
        """Records whose event time was taken from the bus."""
        self._add("fallback_timestamps", n)

    def missing_values(self, n: int) -> None:
        """Values that accepted samples lack."""
        self._add("missing_values", n)

    def scored(self, n: int) -> None:
        """Samples or pairs that went through the models."""
        self._add("scored_samples", n)

    def clipped(self, n: int) -> None:
        """Ratio estimates set to the floor before the logarithm."""
        self._add("clipped_ratios", n)

    def log_ratios(self, values: FloatColumn) -> None:
        """float64[n], log of the estimated ratio; NaN (warming) is left out."""
        self._observe("log_ratio", values)

    def evidence(self, values: FloatColumn, threshold: FloatColumn) -> None:
        """float64[n], evidence, and what each sample's key needs for an alarm (NaN where it is not known yet)."""
        self._observe("evidence_ratio", values / threshold)

    def transition(self, kind: str) -> None:
        """One alarm `raised` or `cleared`, one `notice`, or a key that is `silent` or has `returned`."""
        self._add("alarm_transitions", 1, kind)

    def stage_seconds(self, stage: str, seconds: float) -> None:
        """Time of one batch in one stage."""
        self._observe("batch_stage_seconds", seconds, stage)

    def commit(self, outcome: str, seconds: float) -> None:
        """One commit call and how long it took."""
        self._observe("commit_seconds", seconds, outcome)

    def published(self, kind: str, n: int) -> None:
        """Records committed to the outputs."""
        self._add("published_records", n, kind)

    def keys(self, partition: TopicPartition, live: int, in_alarm: int) -> None:
        """Keys that hold a model, and those of them whose alarm is up."""
        self._set("live_keys", partition, live)
        self._set("alarmed_keys", partition, in_alarm)

    def silent_keys(self, partition: TopicPartition, n: int | None) -> None:
        """Keys that have stopped sending; None where nobody asked for them."""
        self._set("silent_keys", partition, n)

    def lag(self, partition: TopicPartition, n: int | None) -> None:
        """Offsets between the position and the last stable offset; None when unknown, which is not 0."""
        self._set("lag_records", partition, n)

    def bank_bytes(self, partition: TopicPartition, n: int) -> None:
        """Memory of the partition's models."""
        self._set("bank_bytes", partition, n)

    def outbox_bytes(self, partition: TopicPartition, n: int) -> None:
        """Encoded outputs that wait for the next commit."""
        self._set("outbox_bytes", partition, n)

    def forget_partition(self, partition: TopicPartition) -> None:
        """The partition is no longer ours: its gauges end; its counts stay, since counters never fall."""
        for name, about in GAUGES.items():
            if about.labels:
                self._set(name, partition, None)

    def snapshots(self, n: int, n_bytes: int) -> None:
        """State records committed to the state topic (headers not counted), and their bytes."""
        self._add("state_snapshots", n)
        self._add("state_snapshot_bytes", n_bytes)

    def fleet_keys(self, live: int, allowed: int) -> None:
        """Keys that hold a model in this process, and how many the whole fleet was said to have."""
        with self._lock:
            self._gauges["fleet_keys_ratio"][()] = live / allowed

    def snapshot_budget(self, bytes_per_s: float) -> None:
        """What snapshots may take at present."""
        with self._lock:
            self._gauges["state_snapshot_budget_bytes_per_second"][()] = float(bytes_per_s)

    def replay_span(self, partition: TopicPartition, n: int) -> None:
        """Records that would be replayed if the process died now."""
        self._set("replay_span_records", partition, n)

    def dirty_keys(self, partition: TopicPartition, n: int) -> None:
        """Keys with records beyond their last committed snapshot."""
        self._set("dirty_keys", partition, n)

    def restoring(self, partition: TopicPartition, done: int, total: int) -> None:
        """Progress of a restore; its gauge ends when both are equal."""
        self._set("restore_progress_ratio", partition, done / total if done < total else None)

    def restored(self, partition: TopicPartition, keys: int, seconds: float) -> None:
        """A partition is restored: keys found, and the time from its assignment."""
        self._set("restore_progress_ratio", partition, None)
        self._add("restored_keys", keys)
        self._add("healed_partitions", 0, *_labels(partition))  # begins at 0, so that the first one is an increase
        self._observe("restore_seconds", seconds)

    def replayed(self, n: int) -> None:
        """Input records read again to bring restored models up to the last commit."""
        self._add("replayed_records", n)

    def quarantined(self, n: int) -> None:
        """Damaged state records, whose keys start afresh."""
        self._add("quarantined_snapshots", n)

    def refused_keys(self, n: int) -> None:
        """Samples of new keys that were refused because the partition is full."""
        self._add("refused_keys", n)

    def forgotten_keys(self, reason: str, n: int) -> None:
        """Keys that went, `expired` or `forgotten`."""
        self._add("forgotten_keys", n, reason)

    def healed(self, partition: TopicPartition) -> None:
        """A partition that stood still with records to read was started again."""
        self._add("healed_partitions", 1, *_labels(partition))

    def _add(self, name: str, n: float, *labels: str) -> None:
        with self._lock:
            counts = self._counts[name]
            counts[labels] = counts.get(labels, 0.0) + n

    def _set(self, name: str, partition: TopicPartition, value: float | None) -> None:
        with self._lock:
            if value is None:
                self._gauges[name].pop(_labels(partition), None)
            else:
                self._gauges[name][_labels(partition)] = float(value)

    def _observe(self, name: str, values: FloatColumn | float, *labels: str) -> None:
        with self._lock:
            series = self._histograms[name]
            if labels not in series:
                series[labels] = ColumnHistogram(HISTOGRAMS[name].bounds)
            series[labels].observe(values)

    # -- what Prometheus reads --

    def collect(self) -> Iterator[Metric]:
        """All families, each from one consistent moment."""
        with self._lock:
            families = [*self._counter_families(), *self._gauge_families(), *self._histogram_families()]
        yield from families
        yield from self._process_families()

    def render(self) -> tuple[str, bytes]:
        """Content type and text of `/metrics`."""
        return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self.registry)

    def _counter_families(self) -> Iterator[Metric]:
        for name, about in COUNTERS.items():
            counter = CounterMetricFamily(PREFIX + name, about.help, labels=about.labels)
            for labels, value in self._counts[name].items():
                counter.add_metric(labels, value)
            yield counter

    def _gauge_families(self) -> Iterator[Metric]:
        for name, about in GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, about.help, labels=about.labels)
            for labels, value in self._gauges[name].items():
                gauge.add_metric(labels, value)
            yield gauge

    def _histogram_families(self) -> Iterator[Metric]:
        for name, about in HISTOGRAMS.items():
            family = HistogramMetricFamily(PREFIX + name, about.help, labels=about.labels)
            for labels, histogram in self._histograms[name].items():
                _add_histogram(family, dict(zip(about.labels, labels, strict=True)), histogram)
            yield family

    def _process_families(self) -> Iterator[Metric]:
        values: dict[str, tuple[Labels, float]] = {"build_info": ((self._version, platform.python_version()), 1.0)}
        if self._health is not None:
            values["assigned_partitions"] = ((), float(self._health.assigned()))
            values["ready"] = ((), float(self._health.is_ready()))
            values["heartbeat_age_seconds"] = ((), self._health.heartbeat_age_s())
        for name, (labels, value) in values.items():
            about = PROCESS_GAUGES[name]
            family = GaugeMetricFamily(PREFIX + name, about.help, labels=about.labels)
            family.add_metric(labels, value)
            yield family


def _labels(partition: TopicPartition) -> Labels:
    return partition.topic, str(partition.partition)


def _add_histogram(family: Metric, labels: dict[str, str], histogram: ColumnHistogram) -> None:
    """As the library does it, but with a count also where values may be negative; only their sum is left out, since
    it can fall, which Prometheus would take for a restart.
    """
    for bound, count in histogram.buckets():
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
    family.add_sample(f"{family.name}_count", labels, count)
    if not histogram.signed:
        family.add_sample(f"{family.name}_sum", labels, histogram.total)
