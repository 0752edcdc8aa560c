"""The payloads of estimates and alarms, field for field as in `schemas/`."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

UNSET = msgspec.UNSET
Text = str | msgspec.UnsetType

# Encoding so many at once saves a call for each; larger buffers would be mapped and unmapped every time.
_CHUNK = 256


class Estimate(msgspec.Struct, gc=False):
    """One estimate; times in milliseconds since the epoch."""

    app_id: str
    model_epoch: int
    id: str
    key: Text
    key_b64: Text
    seq: int
    input_topic: str
    partition: int
    offset: int
    event_time: int
    state: str
    log_ratio: float | None
    divergence: float | None
    evidence: float
    threshold: float | None


class ModelEstimate(Estimate, gc=False):
    """As `Estimate`, of another kind of model than the likelihood ratio."""

    model: str
    values: dict[str, float | str | None]


class Feature(msgspec.Struct, gc=False):
    """How much one feature drives an alarm; the weights of an alarm sum to 1."""

    name: str
    weight: float


class Contribution(msgspec.Struct, gc=False):
    """What one score adds to an alarm's `log_evidence`."""

    name: str
    value: float
    direction: str


class Values(msgspec.Struct, gc=False):
    """One feature on one side of the change, in its own units."""

    median: float | None
    spread: float | None
    n: int


class Summary(msgspec.Struct, gc=False):
    """One feature before and after the change, and how far that moved it."""

    name: str
    before: Values
    after: Values
    size: float | None


class Correlation(msgspec.Struct, gc=False):
    """Of the leading pair, where that moved."""

    before: float
    after: float


class Explanation(msgspec.Struct, gc=False):
    """What, when, how large; times in milliseconds since the epoch."""

    kind: str
    severity: float
    change_seq_low: int | None
    change_seq_high: int
    change_time_low: int | None
    change_time_high: int
    evidence_ratio: float
    log_evidence: float
    contributions: list[Contribution]
    summaries: list[Summary]
    correlation: Correlation | None


class Alarm(msgspec.Struct):
    """One transition of an alarm; times in milliseconds since the epoch, `lag_s` in seconds."""

    app_id: str
    model_epoch: int
    id: str
    key: Text
    key_b64: Text
    seq: int
    input_topic: str
    partition: int
    offset: int
    event_time: int
    transition: str
    reason: str
    evidence: float
    threshold: float
    arl: float | None
    change_time: int
    change_seq: int
    direction: str
    features: list[Feature]
    guarantee: str
    guarantee_reason: str
    lag_s: float | None
    escalation: float
    false_alarms_per_day: float | None
    explanation: Explanation | None
    incident: str | None
    repeat: int


def key_texts(keys: Sequence[bytes]) -> tuple[list[Text], list[Text]]:
    """Columns `key` and `key_b64`: a key is text where it is UTF-8, else base64; the other field is left out."""
    try:
        return list(map(bytes.decode, keys)), [UNSET] * len(keys)
    except UnicodeDecodeError:
        pairs = list(map(key_text, keys))
        return [text for text, _ in pairs], [binary for _, binary in pairs]


def key_text(key: bytes) -> tuple[Text, Text]:
    """`key` and `key_b64` of one key."""
    try:
        return key.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(key).decode()


def encode_all(encoder: msgspec.json.Encoder, payloads: Iterable[msgspec.Struct]) -> list[bytes]:
    """Each payload as JSON, by way of JSON Lines: line feeds within texts are escaped, so lines can be cut apart."""
    encoded: list[bytes] = []
    source = iter(payloads)
    while chunk := list(islice(source, _CHUNK)):
        encoded += encoder.encode_lines(chunk).split(b"\n")
        encoded.pop()  # what follows the last line feed
    return encoded
