"""Bytes to samples: what is accepted, what is refused and why, and that records do not touch one another."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from codec_batches import BUS_TIME, make_batch, make_decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.codec import DECODERS, Binding
from kstream_worker.records import Batch, Rejects, Samples
from kstream_worker.worker.decode import RecordDecoder

TWO = Binding.of(y=["values.temp", "values.flow"])
FULL = Binding.of(x="ref", y=["a.b", "c\\.d"], dims=2, timestamp="meta.ts", key="meta.id")
MALFORMED = json.loads(Path(__file__).with_name("malformed.json").read_text(encoding="utf-8"))
EXACT = 2**53 - 1


def dump(payload_format: str, payload: object) -> bytes:
    if payload_format == "msgpack":
        packed = msgpack.packb(payload)
        assert isinstance(packed, bytes)
        return packed
    return json.dumps(payload).encode()


def same(a: Samples, b: Samples) -> bool:
    matrices = ((a.x, b.x), (a.y, b.y))
    return (
        a.keys == b.keys
        and a.forget == b.forget
        and np.array_equal(a.offsets, b.offsets)
        and np.array_equal(a.times, b.times)
        and all(
            (p is None and q is None) or (p is not None and q is not None and p.tobytes() == q.tobytes())
            for p, q in matrices
        )
    )


@pytest.mark.parametrize("payload_format", ["json", "msgpack"])
def test_all_kinds_of_bound_fields_are_read(payload_format: str) -> None:
    payload = {
        "ref": [1, -2.5],
        "a": {"b": 3, "unbound": [None, "x"]},
        "c.d": 4.25,
        "meta": {"ts": 1_760_000_000_123, "id": "pump-9"},
        "unbound": {"deep": True},
    }
    samples, rejects = make_decoder(FULL, payload_format).decode(make_batch([dump(payload_format, payload)]))
    assert not rejects.positions
    assert samples.x is not None
    assert samples.x.tolist() == [[1.0, -2.5]]
    assert samples.y.tolist() == [[3.0, 4.25]]
    assert samples.times.tolist() == [1_760_000_000_123]
    assert samples.keys == [b"pump-9"]
    assert samples.offsets.tolist() == [100]


def test_columns_are_contiguous_and_typed() -> None:
    values = [b'{"values":{"temp":1,"flow":2}}', b"broken", b'{"values":{"temp":3,"flow":4}}']
    for chosen in (values, values[:1], values[1:2]):
        samples, _ = make_decoder(TWO).decode(make_batch(chosen))
        assert samples.y.flags.c_contiguous
        assert samples.y.flags.writeable
        assert samples.y.dtype == np.float64
        assert samples.y.shape == (len(samples), 2)
        assert samples.times.dtype == samples.offsets.dtype == np.int64


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case["name"])
def test_malformed_payloads_are_refused_by_name(case: dict[str, str]) -> None:
    value = base64.b64decode(case["base64"]) if "base64" in case else case["text"].encode()
    samples, rejects = make_decoder(TWO).decode(make_batch([value]))
    assert (len(samples), rejects.reasons) == (0, [case["reason"]])
    assert case["says"] in rejects.messages[0]
    assert len(rejects.messages[0]) < 600
    assert rejects.messages[0].isprintable()


@pytest.mark.parametrize(
    ("payload", "reason", "says"),
    [
        ({"v": [1, 2]}, "wrong_length", "v: expected 3 numbers, found 2"),
        ({"v": [1, 2, 3, 4]}, "wrong_length", "found 4"),
        ({"v": []}, "wrong_length", "found 0"),
        ({"v": 1}, "not_a_number", "expected an array"),
        ({"v": {"0": 1}}, "not_a_number", "an object"),
        ({"v": [1, None, 3]}, "not_a_number", "v[1]: expected a number, found null"),
        ({"v": [1, 2, [3]]}, "not_a_number", "v[2]"),
        ({}, "field_missing", "v: no such field"),
    ],
)
@pytest.mark.parametrize("payload_format", ["json", "msgpack"])
def test_arrays_are_strict(payload: object, reason: str, says: str, payload_format: str) -> None:
    decoder = make_decoder(Binding.of(y="v", dims=3), payload_format)
    _, rejects = decoder.decode(make_batch([dump(payload_format, payload)]))
    assert rejects.reasons == [reason]
    assert says in rejects.messages[0]


@pytest.mark.parametrize(
    ("value", "reason"),
    [(math.nan, "not_finite"), (math.inf, "not_finite"), (-math.inf, "not_finite"), (1e151, "out_of_range")],
)
def test_messagepack_numbers_must_be_finite(value: float, reason: str) -> None:
    good = dump("msgpack", {"values": {"temp": 1.0, "flow": 2.0}})
    bad = dump("msgpack", {"values": {"temp": 1.0, "flow": value}})
    samples, rejects = make_decoder(TWO, "msgpack").decode(make_batch([good, bad, good]))
    assert samples.offsets.tolist() == [100, 102]
    assert (rejects.positions, rejects.reasons) == ([1], [reason])


def test_the_largest_magnitude_still_has_a_finite_square() -> None:
    samples, rejects = make_decoder(TWO).decode(make_batch([b'{"values":{"temp":1e150,"flow":-1e150}}']))
    assert not rejects.positions
    assert np.isfinite(samples.y * samples.y * samples.y.shape[1]).all()


@pytest.mark.parametrize("depth", [200, 255, 256, 5_000, 100_000])
@pytest.mark.parametrize("payload_format", ["json", "msgpack"])
def test_nesting_is_bounded_by_count(depth: int, payload_format: str) -> None:
    if payload_format == "json":
        value = b'{"values":{"temp":1,"flow":2},"u":' + b"[" * depth + b"]" * depth + b"}"
    else:
        head = dump("msgpack", {"values": {"temp": 1, "flow": 2}})
        value = b"\x82" + head[1:] + b"\xa1u" + b"\x91" * depth + b"\x90"
    samples, rejects = make_decoder(TWO, payload_format).decode(make_batch([value]))
    assert (len(samples) == 1) == (depth < 256)
    assert all(reason == "not_decodable" for reason in rejects.reasons)


def test_brackets_within_texts_are_no_nesting() -> None:
    value = b'{"note":"\\"' + b"[{" * 1_000 + b'","values":{"temp":1,"flow":2}}'
    samples, _ = make_decoder(TWO).decode(make_batch([value]))
    assert len(samples) == 1


def test_bytes_that_only_look_like_arrays_are_no_nesting() -> None:
    numbers = [float.fromhex(f"0x1.{'9' * 13}p{i}") for i in range(-200, 200)]
    payload = {"u": numbers, "t": ["\u0450" * 40, b"\x91" * 400], "values": {"temp": 1, "flow": 2}}
    samples, _ = make_decoder(TWO, "msgpack").decode(make_batch([dump("msgpack", payload)]))
    assert len(samples) == 1


def test_integer_keys_are_exact_and_missing_ones_fall_back_to_the_record() -> None:
    bound = Binding.of(y=["v"], key="id")
    decoder = make_decoder(bound)
    ids = ["2882429806056571124", "2882429806056571125", "340282366920938463463374607431768211456", "null", '"\u00e9"']
    values = [b'{"v":1,"id":%b}' % text.encode() for text in ids] + [b'{"v":1}']
    samples, rejects = decoder.decode(make_batch(values))
    assert not rejects.positions
    assert samples.keys == [*(text.encode() for text in ids[:3]), b"pump-7", "\u00e9".encode(), b"pump-7"]
    assert decoder.warnings["key_differs"] == 4


@pytest.mark.parametrize("found", ["1.5", "true", "[1]", "{}"])
def test_a_key_is_text_or_an_integer(found: str) -> None:
    _, rejects = make_decoder(Binding.of(y=["v"], key="id")).decode(make_batch([b'{"v":1,"id":%b}' % found.encode()]))
    assert rejects.reasons == ["bad_key"]


# ---- properties

NUMBERS = st.one_of(
    st.floats(-1e150, 1e150),
    st.integers(-EXACT, EXACT),
    st.sampled_from([0, -0.0, 5e-324, 1e150]),
)
OTHERS = st.one_of(st.none(), st.booleans(), st.text(max_size=5), st.lists(NUMBERS, max_size=3), st.just(1e200))
FIELD = st.one_of(NUMBERS, NUMBERS, NUMBERS, OTHERS)
TIMES = st.one_of(
    st.none(),
    st.integers(1_600_000_000_000, 1_800_000_000_000),
    st.just(1.76e12),
    st.just("2025-10-09T10:53:20Z"),
    OTHERS,
)
KEYS = st.one_of(st.none(), st.text(max_size=5), st.integers(-(2**62), 2**62), st.just(1.5))
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "ref": st.one_of(st.lists(FIELD, min_size=2, max_size=2), st.lists(NUMBERS, max_size=3), FIELD),
        "a": st.one_of(st.fixed_dictionaries({"b": FIELD}), FIELD),
        "c.d": FIELD,
        "meta": st.one_of(st.fixed_dictionaries({}, optional={"ts": TIMES, "id": KEYS}), OTHERS),
        "u": OTHERS,
    },
)
FULL_PAYLOADS = st.fixed_dictionaries(
    {
        "ref": st.lists(NUMBERS, min_size=2, max_size=2),
        "a": st.fixed_dictionaries({"b": NUMBERS}),
        "c.d": NUMBERS,
    },
    optional={"meta": st.fixed_dictionaries({}, optional={"ts": TIMES, "id": KEYS}), "u": OTHERS},
)
RECORDS = st.lists(st.one_of(st.none(), st.binary(max_size=12), FULL_PAYLOADS, FULL_PAYLOADS, PAYLOADS), max_size=12)


def encoded(payload_format: str, record: Any) -> bytes | None:
    return record if record is None or isinstance(record, bytes) else dump(payload_format, record)


def is_number(found: object) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool) and abs(found) <= 1e150


def oracle(record: dict[str, Any]) -> tuple[list[float], list[float], bytes] | None:
    """What the binding FULL makes of a payload, by the standard library alone; None where it must be refused."""
    ref, a, y1 = record.get("ref"), record.get("a"), record.get("c.d")
    y0 = a.get("b") if isinstance(a, dict) else None
    meta = record.get("meta")
    key = meta.get("id") if isinstance(meta, dict) else None
    if not (isinstance(ref, list) and len(ref) == 2 and all(map(is_number, [*ref, y0, y1]))) or isinstance(key, float):
        return None
    assert isinstance(y0, int | float)
    assert isinstance(y1, int | float)
    return [float(v) for v in ref], [float(y0), float(y1)], b"pump-7" if key is None else str(key).encode()


@given(RECORDS.map(lambda records: [r for r in records if isinstance(r, dict)]), st.sampled_from(["json", "msgpack"]))
@settings(max_examples=60, deadline=None)
def test_decoding_agrees_with_the_standard_library(records: list[dict[str, Any]], payload_format: str) -> None:
    expected = [oracle(record) for record in records]
    batch = make_batch([encoded(payload_format, record) for record in records])
    samples, rejects = make_decoder(FULL, payload_format).decode(batch)
    assert rejects.positions == [i for i, row in enumerate(expected) if row is None]
    accepted = [row for row in expected if row is not None]
    assert samples.x is not None
    assert samples.x.tolist() == [row[0] for row in accepted]
    assert samples.y.tolist() == [row[1] for row in accepted]
    assert samples.keys == [row[2] for row in accepted]
    assert samples.offsets.tolist() == [100 + i for i, row in enumerate(expected) if row is not None]


def rows_of(batch: Batch, start: int, stop: int) -> Batch:
    part = slice(start, stop)
    return Batch(
        batch.partition,
        batch.offsets[part],
        batch.timestamps[part],
        batch.keys[part],
        batch.values[part],
        batch.headers[part],
        batch.next_offset,
    )


def joined(decoder: RecordDecoder, batch: Batch, cuts: list[int]) -> tuple[Samples, Rejects]:
    """Decode in pieces and put the answers together."""
    pieces, all_rejects = [], Rejects()
    base, forget = 0, []
    for start, stop in zip([0, *cuts], [*cuts, len(batch)], strict=True):
        samples, rejects = decoder.decode(rows_of(batch, start, stop))
        pieces.append(samples)
        forget += [(base + position, *rest) for position, *rest in samples.forget]
        base += len(samples)
        for row, reason, message in zip(rejects.positions, rejects.reasons, rejects.messages, strict=True):
            all_rejects.add(start + row, reason, message)
    x = [piece.x for piece in pieces if piece.x is not None]
    whole = Samples(
        np.concatenate([piece.offsets for piece in pieces]),
        np.concatenate([piece.times for piece in pieces]),
        [key for piece in pieces for key in piece.keys],
        np.concatenate(x) if x else None,
        np.concatenate([piece.y for piece in pieces]),
        forget,  # type: ignore[arg-type]
    )
    return whole, all_rejects


@given(RECORDS, st.sampled_from(["json", "msgpack"]), st.data())
@settings(max_examples=60, deadline=None)
def test_any_cut_into_batches_gives_the_same(records: list[Any], payload_format: str, data: st.DataObject) -> None:
    batch = make_batch([encoded(payload_format, record) for record in records])
    decoder = make_decoder(FULL, payload_format)
    samples, rejects = decoder.decode(batch)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=4)))
    for places in (cuts, list(range(1, len(records)))):
        pieces, piece_rejects = joined(decoder, batch, places)
        assert same(samples, pieces)
        assert rejects == piece_rejects


@given(st.lists(FULL_PAYLOADS, min_size=1, max_size=6), st.binary(max_size=40), st.data())
@settings(max_examples=60, deadline=None)
def test_a_broken_neighbour_changes_nothing(records: list[Any], garbage: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(records)))
    good = [dump("json", record) for record in records]
    offsets = list(range(len(good)))
    alone, alone_rejects = make_decoder(FULL).decode(make_batch(good, timestamps=[BUS_TIME] * len(good)))
    mixed = make_batch([*good[:at], garbage, *good[at:]], timestamps=[BUS_TIME] * (len(good) + 1))
    mixed.offsets = [100 + i for i in (*offsets[:at], 50, *offsets[at:])]
    beside, rejects = make_decoder(FULL).decode(mixed)
    assert same(alone, beside)
    assert len(rejects) == len(alone_rejects) + 1
    assert rejects.reasons[rejects.positions.index(at)] == "not_decodable"


@given(FULL_PAYLOADS, st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_a_truncated_record_is_never_accepted(record: dict[str, Any], at: int) -> None:
    for payload_format in ("json", "msgpack"):
        value = dump(payload_format, record)
        _, rejects = make_decoder(FULL, payload_format).decode(make_batch([value[: min(at, len(value) - 1)]]))
        assert len(rejects) == 1


@given(st.lists(NUMBERS, min_size=3, max_size=3), st.sampled_from(["json", "msgpack"]))
@settings(deadline=None)
def test_numbers_survive_the_round_trip(numbers: list[float], payload_format: str) -> None:
    fields = DECODERS[payload_format](Binding.of(y="v", dims=3)).decode(
        [dump(payload_format, {"v": numbers})], [0], Rejects()
    )
    assert fields.y.tobytes() == np.array([numbers], dtype=np.float64).tobytes() or numbers == fields.y[0].tolist()
