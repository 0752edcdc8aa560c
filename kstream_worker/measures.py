"""What the worker measures: the contract of telemetry, which of itself does nothing."""

from __future__ import annotations

from kstream_worker.records import FloatColumn, TopicPartition


class Telemetry:
    """What the worker tells about its work: once per batch or commit, never per record.

    As it is, it ignores everything, which is the default and what notebooks and tests use; what measures overrides. No
    call may raise or block. Keys of records are no part of it: labels of metrics stay bounded.
    """

    def records(self, partition: TopicPartition, n: int) -> None:
        """Records read from the input, before the gate."""

    def rejects(self, reason: str, n: int) -> None:
        """Records that the gate refused, by its fixed word."""

    def fallback_timestamps(self, n: int) -> None:
        """Records whose event time was taken from the bus because their own was missing or unusable."""

    def missing_values(self, n: int) -> None:
        """Values that accepted samples lack, of models that take such samples."""

    def scored(self, n: int) -> None:
        """Samples or pairs that went through the models."""

    def clipped(self, n: int) -> None:
        """Ratio estimates set to the floor before the logarithm."""

    def log_ratios(self, values: FloatColumn) -> None:
        """float64[n], log of the estimated ratio; NaN (warming) is left out."""

    def evidence(self, values: FloatColumn, threshold: FloatColumn) -> None:
        """float64[n], evidence, and what each sample's key needs for an alarm (NaN where it is not known yet)."""

    def transition(self, kind: str) -> None:
        """One alarm `raised` or `cleared`, one `notice`, or a key that is `silent` or has `returned`."""

    def stage_seconds(self, stage: str, seconds: float) -> None:
        """Time of one batch in one of `STAGES`."""

    def commit(self, outcome: str, seconds: float) -> None:
        """One commit call: `committed`, `aborted`, `retry` or `rejoin`, and how long it took."""

    def published(self, kind: str, n: int) -> None:
        """Records committed to the outputs: `estimate`, `alarm` or `dead_letter`."""

    def keys(self, partition: TopicPartition, live: int, in_alarm: int) -> None:
        """Keys that hold a model, and those of them whose alarm is up."""

    def silent_keys(self, partition: TopicPartition, n: int | None) -> None:
        """Keys that have stopped sending; None where nobody asked for them."""

    def lag(self, partition: TopicPartition, n: int | None) -> None:
        """Offsets between the position and the last stable offset; None when unknown, which is not 0."""

    def bank_bytes(self, partition: TopicPartition, n: int) -> None:
        """Memory of the partition's models."""

    def outbox_bytes(self, partition: TopicPartition, n: int) -> None:
        """Encoded outputs that wait for the next commit."""

    def forget_partition(self, partition: TopicPartition) -> None:
        """The partition is no longer ours: its gauges end."""

    def snapshots(self, n: int, n_bytes: int) -> None:
        """State records committed to the state topic (headers not counted), and their bytes."""

    def fleet_keys(self, live: int, allowed: int) -> None:
        """Keys that hold a model in this process, and how many the whole fleet was said to have."""

    def snapshot_budget(self, bytes_per_s: float) -> None:
        """What snapshots may take at present."""

    def replay_span(self, partition: TopicPartition, n: int) -> None:
        """Records that would be replayed if the process died now."""

    def dirty_keys(self, partition: TopicPartition, n: int) -> None:
        """Keys with records beyond their last committed snapshot."""

    def restoring(self, partition: TopicPartition, done: int, total: int) -> None:
        """Progress of a restore, in offsets of the state topic; it has ended when both are equal."""

    def restored(self, partition: TopicPartition, keys: int, seconds: float) -> None:
        """A partition is restored: keys found, and the time from its assignment."""

    def replayed(self, n: int) -> None:
        """Input records read again to bring restored models up to the last commit."""

    def quarantined(self, n: int) -> None:
        """Damaged state records, whose keys start afresh."""

    def refused_keys(self, n: int) -> None:
        """Samples of new keys that were refused because the partition holds `state.max_keys` already."""

    def forgotten_keys(self, reason: str, n: int) -> None:
        """Keys that went, `expired` or `forgotten` (a tombstone)."""

    def healed(self, partition: TopicPartition) -> None:
        """A partition that stood still with records to read was started again."""


STAGES = ("poll", "decode", "update", "encode")
