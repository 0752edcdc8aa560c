"""Fixed inputs of the encoder, whose outputs are the examples in `schemas/examples`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from codec_batches import make_batch

from kstream_worker.codec.outputs import OutputEncoder, OutputSettings, Topic
from kstream_worker.models.contract import Column
from kstream_worker.records import (
    Contribution,
    Explanation,
    Incident,
    Messages,
    Rejects,
    Samples,
    Scores,
    Summary,
    TopicPartition,
    Transition,
)
from kstream_worker.worker.silence import Silence

SCHEMAS = Path(__file__).parents[2] / "schemas"
EXAMPLES = SCHEMAS / "examples"
INPUT = TopicPartition("telemetry", 2)
NOW_MS = 1_760_000_041_500


COLUMNS = (Column("cleaned.temp"), Column("subspace", ("intake", "outlet")))


EXPLANATION = Explanation(
    kind="level",
    severity=0.75,
    change_seq_low=995,
    change_seq_high=1004,
    change_time_low=1_759_999_994_000,
    change_time_high=1_760_000_003_000,
    contributions=(
        Contribution("temp", 14.5, "up"),
        Contribution("flow", -0.5, "both"),
        Contribution("temp*flow", -1.25, "both"),
    ),
    log_evidence=12.75,
    summaries=(Summary("temp", (21.5, 0.5, 290), (23.0, 0.625, 42), 1.5),),
    correlation=None,
)


def encoder_of(
    *,
    partitions: int = 4,
    estimate_every: int = 1,
    max_dead_letter_bytes: int = 10_000,
    model: str | None = None,
) -> OutputEncoder:
    names = ("drift-estimates", "drift-alarms", "drift-dead-letters")
    estimates, alarms, dead_letters = (Topic(name, partitions) for name in names)
    return OutputEncoder(
        OutputSettings(
            app_id="drift",
            model_epoch=1,
            input_partitions=4,
            estimates=estimates,
            alarms=alarms,
            dead_letters=dead_letters,
            model=model,
            columns=COLUMNS if model else (),
            estimate_every=estimate_every,
            max_dead_letter_bytes=max_dead_letter_bytes,
        )
    )


def samples_of(keys: list[bytes], first: int = 1000) -> Samples:
    n = len(keys)
    offsets = first + np.arange(n, dtype=np.int64)
    return Samples(offsets, 1_760_000_000_000 + 1000 * np.arange(n), keys, None, np.zeros((n, 2)))


def scores_of(n: int) -> Scores:
    warm = np.arange(n) > 0
    return Scores(
        state=np.array([0, 1, 2] * n, dtype=np.int8)[:n],
        seq=np.arange(1, n + 1, dtype=np.int64),
        log_ratio=np.where(warm, 0.1 + np.arange(n) / 3, np.nan),
        divergence=np.where(warm, 1e-7, np.nan),
        evidence=np.where(warm, 1234567.875, 0.0),
        threshold=np.full(n, 2_000_000.0),
        transitions=[],
    )


def transition_of(kind: str = "raised", reason: str | None = None) -> Transition:
    return Transition(
        row=5 if kind == "raised" else -1,
        slot=0,
        kind=kind,
        reason=reason or ("temp" if kind == "raised" else "forgotten"),
        seq=1042,
        evidence=20_971_520.25,
        threshold=20_000_000.0,
        change_seq=1001,
        change_time=1_760_000_000_000,
        direction="up",
        features=(("temp", 0.75), ("flow", 0.25)),
        guarantee="exact_if_iid",
        guarantee_reason="samples of a key are independent and alike until the change",
        arl=1_000_000.0,
        escalation=10.0,
        false_alarms_per_day=0.00864,
        explanation=EXPLANATION if kind == "raised" else None,
        incident=None if kind == "notice" else Incident(1042, 1_760_000_041_000),
    )


def example_messages() -> dict[str, Messages]:
    """One message of each kind, by the name of its example."""
    encoder = encoder_of()
    keys = [b"pump-7", b"pump-7", b"\x00\xff"]
    (estimates,) = encoder.estimates(INPUT, samples_of(keys), scores_of(3))
    names = ("estimate_warming", "estimate", "estimate_binary_key")
    found = {name: row_of(estimates, i) for i, name in enumerate(names)}
    times = (1_760_000_041_000, 1_760_000_041_500)
    watched, scores = encoder_of(model="olrsc"), scores_of(2)
    scores.log_ratio[:], scores.divergence[:] = np.nan, np.nan
    scores.estimates = np.array([[np.nan, np.nan], [21.25, 1.0]])
    (of_model,) = watched.estimates(INPUT, samples_of([b"pump-7"] * 2, 1100), scores)
    found["estimate_model_warming"], found["estimate_model"] = row_of(of_model, 0), row_of(of_model, 1)
    found["alarm_raised"] = encoder.alarm(INPUT, b"pump-7", 1041, *times, transition_of(), NOW_MS)
    turned = replace(EXPLANATION, kind="dependence", correlation=(0.0, 0.75), change_seq_low=None, change_time_low=None)
    dependent = replace(transition_of(), reason="temp*flow", explanation=turned)
    found["alarm_dependence"] = encoder.alarm(INPUT, b"pump-7", 1041, *times, dependent, NOW_MS)
    found["alarm_forgotten"] = encoder.alarm(INPUT, b"\x00\xff", 1050, -1, -1, transition_of("cleared"), NOW_MS)
    again = replace(transition_of(), seq=1942, incident=Incident(1042, 1_760_000_041_000, 1))
    found["alarm_repeated"] = encoder.alarm(INPUT, b"pump-7", 1941, times[0] + 900_000, times[1], again, NOW_MS)
    recovered = replace(
        again, kind="cleared", reason="recovered", seq=2142, evidence=0.0, direction="both", features=()
    )
    recovered = replace(recovered, change_seq=2142, change_time=times[0] + 1_100_000, explanation=None)
    back = times[0] + 1_100_000, times[1]
    found["alarm_recovered"] = encoder.alarm(INPUT, b"pump-7", 2141, *back, recovered, NOW_MS)
    expired = transition_of("cleared", "expired")
    found["alarm_expired"] = encoder.alarm(INPUT, b"pump-8", 1055, *times, expired, NOW_MS, 1)
    notice = replace(
        transition_of("notice", "not_stationary"),
        evidence=0.0,
        change_seq=1042,
        change_time=times[0],
        direction="both",
        features=(),
        guarantee="none",
        guarantee_reason="Not stationary: the last 3 alarms each came soon after an arming.",
    )
    found["alarm_notice"] = encoder.alarm(INPUT, b"pump-9", 1056, *times, notice, NOW_MS)
    silence = Silence(slot=0, seq=1042, since_ms=1_759_999_741_000, limit_ms=240_000)
    silent, returned = silence.raised(times[0]), silence.returned(5, times[0] + 20_000)
    found["alarm_silent"] = encoder.alarm(INPUT, b"pump-10", 1057, *times, silent, NOW_MS)
    later = (times[0] + 20_000, times[1] + 20_000)
    found["alarm_returned"] = encoder.alarm(INPUT, b"pump-10", 1059, *later, returned, NOW_MS + 20_000)
    batch = make_batch([b'{"values":{"temp":"21.5"}}'], first=1060)
    batch.headers[0] = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    rejects = Rejects([0], ["not_a_number"], ["values.temp: expected a number, found text '21.5'"])
    (found["dead_letter"],) = encoder.dead_letters(batch, rejects)
    return found


def row_of(messages: Messages, row: int) -> Messages:
    part = slice(row, row + 1)
    return Messages(
        messages.partition,
        messages.keys[part],
        messages.values[part],
        messages.timestamps[part],
        messages.headers[part],
    )


def example_text(name: str, messages: Messages) -> bytes:
    """What the example file holds: the payload, or for a dead letter the whole record."""
    value = messages.values[0]
    assert value is not None
    if name != "dead_letter":
        return value + b"\n"
    record = {
        "key": (messages.keys[0] or b"").decode(),
        "value": value.decode(),
        "timestamp": messages.timestamps[0],
        "headers": [{"name": header, "value": content.decode()} for header, content in messages.headers[0]],
    }
    return json.dumps(record, indent=2).encode() + b"\n"


def write_examples() -> None:
    """Write the examples anew, after a deliberate change of the contract."""
    for name, messages in example_messages().items():
        (EXAMPLES / f"{name}.json").write_bytes(example_text(name, messages))
