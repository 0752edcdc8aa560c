from __future__ import annotations

import re
import shutil
import subprocess
import threading

import numpy as np
import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import kstream_worker.telemetry.families as module
from kstream_worker.measures import STAGES, Telemetry
from kstream_worker.records import TopicPartition
from kstream_worker.telemetry.families import COUNTERS, GAUGES, HISTOGRAMS, PREFIX, PROCESS_GAUGES
from kstream_worker.telemetry.histogram import ColumnHistogram
from kstream_worker.telemetry.metrics import Metrics

FIRST = TopicPartition("readings", 0)
SECOND = TopicPartition("readings", 1)


class Loop:
    def assigned(self) -> int:
        return 3

    def is_ready(self) -> bool:
        return True

    def heartbeat_age_s(self) -> float:
        return 0.25


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    content_type, text = metrics.render()
    assert content_type.startswith("text/plain; version=0.0.4")
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((PREFIX + name, frozenset(labels.items())))


def work(telemetry: Telemetry) -> None:
    """One of every call."""
    telemetry.records(FIRST, 100)
    telemetry.records(FIRST, 50)
    telemetry.records(SECOND, 1)
    telemetry.rejects("not_finite", 2)
    telemetry.fallback_timestamps(3)
    telemetry.missing_values(5)
    telemetry.scored(148)
    telemetry.clipped(4)
    telemetry.log_ratios(np.array([np.nan, -0.3, 0.0, 0.05, 9.0]))
    telemetry.evidence(np.array([0.0, 500.0, 1000.0, np.nan]), np.full(4, 1000.0))
    telemetry.transition("raised")
    telemetry.transition("cleared")
    telemetry.stage_seconds("decode", 0.02)
    telemetry.commit("committed", 0.014)
    telemetry.published("estimate", 148)
    telemetry.keys(FIRST, 20, 1)
    telemetry.silent_keys(FIRST, 4)
    telemetry.silent_keys(SECOND, None)
    telemetry.lag(FIRST, 7)
    telemetry.bank_bytes(FIRST, 4096)
    telemetry.outbox_bytes(FIRST, 512)
    telemetry.snapshots(12, 3400)
    telemetry.snapshot_budget(4194304.0)
    telemetry.fleet_keys(30, 20)
    telemetry.replay_span(FIRST, 900)
    telemetry.dirty_keys(FIRST, 8)
    telemetry.restoring(SECOND, 30, 120)
    telemetry.restored(FIRST, 20, 1.5)
    telemetry.replayed(900)
    telemetry.quarantined(1)
    telemetry.refused_keys(5)
    telemetry.forgotten_keys("expired", 6)
    telemetry.healed(FIRST)


def test_what_the_worker_tells_is_what_prometheus_reads() -> None:
    metrics = Metrics("1.2.3", Loop())
    work(metrics)
    partition = {"topic": "readings", "partition": "0"}
    assert value(metrics, "records_total", **partition) == 150
    assert value(metrics, "records_total", topic="readings", partition="1") == 1
    assert value(metrics, "rejected_records_total", reason="not_finite") == 2
    assert value(metrics, "fallback_timestamps_total") == 3
    assert value(metrics, "missing_values_total") == 5
    assert value(metrics, "scored_samples_total") == 148
    assert value(metrics, "clipped_ratios_total") == 4
    assert value(metrics, "alarm_transitions_total", kind="raised") == 1
    assert value(metrics, "published_records_total", kind="estimate") == 148
    assert value(metrics, "live_keys", **partition) == 20
    assert value(metrics, "alarmed_keys", **partition) == 1
    assert value(metrics, "silent_keys", **partition) == 4
    assert value(metrics, "silent_keys", topic="readings", partition="1") is None
    assert value(metrics, "lag_records", **partition) == 7
    assert value(metrics, "bank_bytes", **partition) == 4096
    assert value(metrics, "outbox_bytes", **partition) == 512
    assert value(metrics, "batch_stage_seconds_sum", stage="decode") == 0.02
    assert value(metrics, "commit_seconds_bucket", outcome="committed", le="0.01") == 0
    assert value(metrics, "commit_seconds_bucket", outcome="committed", le="0.025") == 1
    assert value(metrics, "commit_seconds_count", outcome="committed") == 1
    assert value(metrics, "log_ratio_count") == 4
    assert value(metrics, "log_ratio_sum") is None
    assert value(metrics, "log_ratio_bucket", le="-0.25") == 1
    assert value(metrics, "log_ratio_bucket", le="0.0") == 2
    assert value(metrics, "log_ratio_bucket", le="+Inf") == 4
    assert value(metrics, "evidence_ratio_sum") == 1.5
    assert value(metrics, "evidence_ratio_bucket", le="0.5") == 2
    assert value(metrics, "evidence_ratio_bucket", le="1.0") == 3
    assert value(metrics, "state_snapshots_total") == 12
    assert value(metrics, "state_snapshot_bytes_total") == 3400
    assert value(metrics, "state_snapshot_budget_bytes_per_second") == 4194304
    assert value(metrics, "fleet_keys_ratio") == 1.5
    assert value(metrics, "replay_span_records", **partition) == 900
    assert value(metrics, "dirty_keys", **partition) == 8
    assert value(metrics, "restore_progress_ratio", topic="readings", partition="1") == 0.25
    assert value(metrics, "restored_keys_total") == 20
    assert value(metrics, "restore_seconds_sum") == 1.5
    assert value(metrics, "restore_seconds_bucket", le="2.5") == 1
    assert value(metrics, "replayed_records_total") == 900
    assert value(metrics, "quarantined_snapshots_total") == 1
    assert value(metrics, "refused_keys_total") == 5
    assert value(metrics, "forgotten_keys_total", reason="expired") == 6
    assert value(metrics, "healed_partitions_total", **partition) == 1
    assert value(metrics, "assigned_partitions") == 3
    assert value(metrics, "ready") == 1
    assert value(metrics, "heartbeat_age_seconds") == 0.25
    assert any(name == PREFIX + "build_info" and ("version", "1.2.3") in labels for name, labels in samples(metrics))


def test_every_metric_stands_in_the_header_with_its_labels() -> None:
    header = module.__doc__ or ""
    families = {**COUNTERS, **GAUGES, **HISTOGRAMS, **PROCESS_GAUGES}
    for name, about in families.items():
        shown = (
            name + ("_total" if name in COUNTERS else "") + (f"{{{','.join(about.labels)}}}" if about.labels else "")
        )
        assert re.search(rf"\s{re.escape(shown)}\s", header), shown
    listed = re.findall(r"^ {4}(?:\w+)? +(\w+)(?:\{[\w,]+\})? {2,}\S", header, re.MULTILINE)
    assert {name.removesuffix("_total") for name in listed} == set(families)


LABELS = {"topic", "partition", "reason", "kind", "stage", "outcome", "le", "version", "python"}


def test_names_follow_the_conventions() -> None:
    metrics = Metrics("1", Loop())
    work(metrics)
    for family in metrics.registry.collect():
        assert family.name.startswith((PREFIX, "process_"))
        assert family.documentation.endswith(".") or family.name.startswith("process_")
        for sample in family.samples:
            assert not sample.name.endswith("_created")
            assert set(sample.labels) <= LABELS


def test_known_series_begin_at_0() -> None:
    metrics = Metrics("1")
    assert value(metrics, "alarm_transitions_total", kind="raised") == 0
    assert value(metrics, "published_records_total", kind="dead_letter") == 0
    assert value(metrics, "forgotten_keys_total", reason="expired") == 0
    assert value(metrics, "quarantined_snapshots_total") == 0
    assert value(metrics, "commit_seconds_count", outcome="retry") == 0
    assert value(metrics, "batch_stage_seconds_count", stage="update") == 0


def test_the_text_is_well_formed_for_prometheus_itself() -> None:
    metrics = Metrics("1", Loop())
    work(metrics)
    _, text = metrics.render()
    helped = re.findall(r"^# HELP (\S+) \S", text.decode(), re.MULTILINE)
    assert sorted(helped) == sorted(set(helped))
    promtool = shutil.which("promtool")
    if promtool is None:  # not everywhere (Debian package prometheus); the parser above has read the text too
        return
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=30, check=False)
    assert (checked.returncode, checked.stderr.decode()) == (0, "")


def test_each_worker_has_a_registry_of_its_own() -> None:
    first, second = Metrics("1"), Metrics("1")
    first.scored(5)
    assert value(second, "scored_samples_total") == 0
    assert not any(family.name.startswith(PREFIX) for family in REGISTRY.collect())
    shared = CollectorRegistry()
    assert Metrics("1", registry=shared).registry is shared
    assert value(first, "ready") is None


def test_unknown_lag_is_absent_and_a_partition_that_left_ends() -> None:
    metrics = Metrics("1")
    work(metrics)
    metrics.lag(FIRST, None)
    partition = {"topic": "readings", "partition": "0"}
    assert value(metrics, "lag_records", **partition) is None
    metrics.lag(FIRST, 0)
    assert value(metrics, "lag_records", **partition) == 0
    metrics.forget_partition(FIRST)
    metrics.forget_partition(SECOND)
    left = {name.removeprefix(PREFIX) for name, _ in samples(metrics)} & set(GAUGES)
    assert left == {"fleet_keys_ratio", "state_snapshot_budget_bytes_per_second"}  # of the process
    assert value(metrics, "records_total", **partition) == 150


def test_progress_of_a_restore_is_absent_when_there_is_none() -> None:
    metrics = Metrics("1")
    partition = {"topic": "readings", "partition": "0"}
    metrics.restoring(FIRST, 0, 0)
    assert value(metrics, "restore_progress_ratio", **partition) is None
    metrics.restoring(FIRST, 0, 10)
    assert value(metrics, "restore_progress_ratio", **partition) == 0
    metrics.restoring(FIRST, 10, 10)
    assert value(metrics, "restore_progress_ratio", **partition) is None
    metrics.restoring(FIRST, 5, 10)
    metrics.restored(FIRST, 3, 0.5)
    assert value(metrics, "restore_progress_ratio", **partition) is None


def test_a_healed_partition_begins_at_0() -> None:
    metrics = Metrics("1")
    metrics.restored(FIRST, 3, 0.5)
    assert value(metrics, "healed_partitions_total", topic="readings", partition="0") == 0
    metrics.healed(FIRST)
    assert value(metrics, "healed_partitions_total", topic="readings", partition="0") == 1


def test_series_stay_bounded() -> None:
    metrics = Metrics("1")
    for number in range(500):
        metrics.rejects(f"reason {number}", 1)
    reasons = [dict(labels) for name, labels in samples(metrics) if name.endswith("rejected_records_total")]
    assert len(reasons) == 65
    assert value(metrics, "rejected_records_total", reason="other") == 436


def test_the_default_is_silent() -> None:
    work(Telemetry())
    assert STAGES == ("poll", "decode", "update", "encode")


def test_every_measurement_is_taken() -> None:
    told = [name for name in vars(Telemetry) if not name.startswith("_")]
    assert [name for name in told if name not in vars(Metrics)] == []


def test_reading_while_writing_is_consistent() -> None:
    metrics = Metrics("1")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            metrics.evidence(np.array([0.0, 1.0]), np.ones(2))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [samples(metrics) for _ in range(50)]
    finally:
        stop.set()
        writer.join()
    counts = [each.get((PREFIX + "evidence_ratio_count", frozenset()), 0.0) for each in seen]
    sums = [each.get((PREFIX + "evidence_ratio_sum", frozenset()), 0.0) for each in seen]
    assert counts[-1] > 0
    assert counts == [2 * total for total in sums]


@pytest.mark.parametrize("seed", range(5))
def test_buckets_agree_with_counting_one_by_one(seed: int) -> None:
    generator = np.random.default_rng(seed)
    bounds = np.unique(generator.normal(size=9).round(1)).tolist()
    histogram = ColumnHistogram(bounds)
    seen: list[float] = []
    for size in (0, 1, 100, 1000):
        column = generator.normal(size=size).round(1)  # many values lie on a bound exactly
        histogram.observe(column)
        seen += column.tolist()
    expected = [float(sum(x <= bound for x in seen)) for bound in [*bounds, np.inf]]
    assert [count for _, count in histogram.buckets()] == expected
    assert histogram.total == pytest.approx(sum(seen))


def test_a_histogram_survives_what_is_not_finite() -> None:
    histogram = ColumnHistogram([0.0, 1.0])
    histogram.observe(np.array([np.nan, np.inf, -np.inf, 0.5]))
    assert histogram.buckets() == [("0.0", 1.0), ("1.0", 2.0), ("+Inf", 3.0)]
    assert histogram.total == 0.5


@pytest.mark.parametrize("bounds", [[1.0, 1.0], [2.0, 1.0], [0.0, np.inf], [np.nan]])
def test_bounds_must_ascend(bounds: list[float]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        ColumnHistogram(bounds)
