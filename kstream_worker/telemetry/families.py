"""The families of metrics: names, help texts, labels and bounds.

All names begin with `kstream_worker_`:

    counters    records_total{topic,partition}          records read from the input
                rejected_records_total{reason}          records refused by the gate, now dead letters
                fallback_timestamps_total               records that were given the bus's time
                missing_values_total                    values that accepted samples lack
                scored_samples_total                    samples or pairs that went through the models
                clipped_ratios_total                    ratio estimates set to the floor before the logarithm
                alarm_transitions_total{kind}           alarms raised, cleared; notices; silences
                published_records_total{kind}           committed estimates, alarms and dead letters
                state_snapshots_total                   snapshots and tombstones committed to the state topic
                state_snapshot_bytes_total              their bytes
                replayed_records_total                  records read again to bring restored models up to date
                restored_keys_total                     keys found in restored partitions
                quarantined_snapshots_total             damaged state records; their keys start afresh
                refused_keys_total                      samples of new keys, refused because the partition is full
                forgotten_keys_total{reason}            keys that went: expired or forgotten (a null value)
                healed_partitions_total{topic,partition}  times it stood still and was started again
    gauges      live_keys{topic,partition}              keys that hold a model
                alarmed_keys{topic,partition}           keys whose alarm is up, that of silence apart
                silent_keys{topic,partition}            keys without a record for longer than `detector.silence`
                lag_records{topic,partition}            behind the last stable offset; absent when unknown
                bank_bytes{topic,partition}             memory of the models
                outbox_bytes{topic,partition}           outputs waiting for a commit
                replay_span_records{topic,partition}    records to be read again if the process died now
                dirty_keys{topic,partition}             keys with records beyond their last committed snapshot
                restore_progress_ratio{topic,partition}  of a restore under way; absent when there is none
                fleet_keys_ratio                        keys of this process over `detector.fleet_keys`
                state_snapshot_budget_bytes_per_second  what snapshots may take at present
                assigned_partitions                     partitions of this process
                ready                                   1 when all of them are being read
                heartbeat_age_seconds                   since the loop last turned
                build_info{version,python}              1
    histograms  batch_stage_seconds{stage}              time of a batch in poll, decode, update, encode
                commit_seconds{outcome}                 commit calls: committed, aborted, retry, rejoin
                restore_seconds                         from the assignment of a partition until it is restored
                log_ratio                               log of the estimated likelihood ratio, live / reference
                evidence_ratio                          evidence / threshold; an alarm is raised at 1

Beside them stand the `process_` metrics of the client library. No label holds a key of a record.
"""

from __future__ import annotations

from typing import NamedTuple

from kstream_worker.measures import STAGES

PREFIX = "kstream_worker_"
_PARTITION = ("topic", "partition")
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RESTORE_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_LOG_RATIOS = (-8.0, -4.0, -2.0, -1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0)
_EVIDENCE = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.5, 0.999999, 1.0)


class Description(NamedTuple):
    """A metric family: its help text, labels, the bounds of a histogram, and values of its one label known beforehand.

    Those begin at 0: the first alarm of a process would else be no increase to Prometheus.
    """

    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    known: tuple[str, ...] = ()

    def series(self) -> list[tuple[str, ...]]:
        """The series that there are from the beginning."""
        return [(value,) for value in self.known] if self.labels else [()]


COUNTERS = {
    "records": Description("Records read from the input.", _PARTITION),
    "rejected_records": Description("Records refused by the gate, now dead letters.", ("reason",)),
    "fallback_timestamps": Description("Records whose event time was taken from the bus."),
    "missing_values": Description("Values that accepted samples lack, of models that take such samples."),
    "scored_samples": Description("Samples or pairs that went through the models."),
    "clipped_ratios": Description("Ratio estimates set to the floor before the logarithm."),
    "alarm_transitions": Description(
        "Alarms of changes raised and cleared, notices, silences and their ends.",
        ("kind",),
        known=("raised", "cleared", "notice", "silent", "returned"),
    ),
    "published_records": Description(
        "Records committed to the outputs.", ("kind",), known=("estimate", "alarm", "dead_letter")
    ),
    "state_snapshots": Description("Snapshots of keys and tombstones committed to the state topic."),
    "state_snapshot_bytes": Description("Bytes of the snapshots and tombstones committed to the state topic."),
    "replayed_records": Description("Input records read again to bring restored models up to the last commit."),
    "restored_keys": Description("Keys found in the partitions that were restored."),
    "quarantined_snapshots": Description("Damaged state records; their keys start afresh."),
    "refused_keys": Description("Samples of new keys refused because the partition holds `state.max_keys` already."),
    "forgotten_keys": Description(
        "Keys that went: unseen for `state.ttl`, or forgotten by a null value.",
        ("reason",),
        known=("expired", "forgotten"),
    ),
    "healed_partitions": Description(
        "Times a partition that stood still with records to read was started again.",
        _PARTITION,
    ),
}
GAUGES = {
    "live_keys": Description("Keys that hold a model.", _PARTITION),
    "alarmed_keys": Description("Keys whose alarm is up, that of silence apart.", _PARTITION),
    "silent_keys": Description(
        "Keys without a record for longer than `detector.silence`; absent where that is 0.", _PARTITION
    ),
    "lag_records": Description("Offsets behind the last stable offset; absent when unknown.", _PARTITION),
    "bank_bytes": Description("Memory of the models.", _PARTITION),
    "outbox_bytes": Description("Encoded outputs waiting for the next commit.", _PARTITION),
    "replay_span_records": Description("Records to be read again if the process died now.", _PARTITION),
    "dirty_keys": Description("Keys with records beyond their last committed snapshot.", _PARTITION),
    "restore_progress_ratio": Description(
        "Part of the state topic that a restore under way has read; absent when there is none.", _PARTITION
    ),
    "fleet_keys_ratio": Description(
        "Keys of this process over `detector.fleet_keys`; absent without. Summed over processes it must stay at most 1."
    ),
    "state_snapshot_budget_bytes_per_second": Description("Bytes per second that snapshots may take at present."),
}
HISTOGRAMS = {
    "batch_stage_seconds": Description("Time of one batch in a stage.", ("stage",), _SECONDS, known=STAGES),
    "commit_seconds": Description(
        "Time of one commit call.", ("outcome",), _SECONDS, known=("committed", "aborted", "retry", "rejoin")
    ),
    "restore_seconds": Description(
        "Time from the assignment of a partition until its state is read.", (), _RESTORE_SECONDS
    ),
    "log_ratio": Description("Log of the estimated likelihood ratio, live / reference.", (), _LOG_RATIOS),
    "evidence_ratio": Description("Evidence / threshold; an alarm is raised at 1.", (), _EVIDENCE),
}
PROCESS_GAUGES = {
    "assigned_partitions": Description("Partitions assigned to this process."),
    "ready": Description("1 when all assigned partitions are being read."),
    "heartbeat_age_seconds": Description("Time since the loop last turned."),
    "build_info": Description("Version of the worker.", ("version", "python")),
}
