"""Models that take missing values: what is missing becomes NaN, and a sample with nothing at all is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import msgpack
import numpy as np
import pytest
from codec_batches import make_batch, make_decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.codec import DECODERS, Binding
from kstream_worker.gate import Gate
from kstream_worker.records import Rejects

FLAT = Binding.of(y=["temp", "inner.flow", "inner.deep.level"], missing=True)
ARRAY = Binding.of(y="v", dims=3, missing=True)
FORMATS = ("json", "msgpack")


def dump(payload_format: str, payload: object) -> bytes:
    packed: bytes = msgpack.packb(payload) if payload_format == "msgpack" else json.dumps(payload).encode()
    return packed


def decoded(binding: Binding, payload_format: str, *payloads: object) -> tuple[list[list[float | None]], Rejects, Gate]:
    gate = Gate(missing=True)
    batch = make_batch([dump(payload_format, payload) for payload in payloads])
    samples, rejects = make_decoder(binding, payload_format, gate=gate).decode(batch)
    rows = [[None if math.isnan(value) else value for value in row] for row in samples.y.tolist()]
    return rows, rejects, gate


@pytest.mark.parametrize("payload_format", FORMATS)
@pytest.mark.parametrize(
    ("payload", "row"),
    [
        ({"temp": 1, "inner": {"flow": 2, "deep": {"level": 3}}}, [1, 2, 3]),
        ({"temp": None, "inner": {"flow": 2, "deep": {"level": 3}}}, [None, 2, 3]),
        ({"temp": 1, "inner": {"flow": 2, "deep": {}}}, [1, 2, None]),
        ({"temp": 1, "inner": {"flow": 2, "deep": None}}, [1, 2, None]),
        ({"temp": 1, "inner": {"flow": 2}}, [1, 2, None]),
        ({"temp": 1, "inner": None}, [1, None, None]),
        ({"temp": 1}, [1, None, None]),
    ],
)
def test_null_and_absent_are_missing_at_every_level(payload_format: str, payload: object, row: list[Any]) -> None:
    rows, rejects, gate = decoded(FLAT, payload_format, payload, {"temp": 5, "inner": {"flow": 6}})
    assert rows == [row, [5, 6, None]]
    assert not rejects.positions
    assert gate.warnings["missing_values"] == row.count(None) + 1


@pytest.mark.parametrize("payload_format", FORMATS)
def test_arrays_may_have_holes(payload_format: str) -> None:
    payloads = ({"v": [1, None, 3]}, {"v": None}, {}, {"v": [None] * 3}, {"v": [1, 2]}, {"v": 5}, {"v": [1, "x", 2]})
    rows, rejects, gate = decoded(ARRAY, payload_format, *payloads)
    assert rows == [[1, None, 3]]
    assert rejects.reasons == ["all_missing"] * 3 + ["wrong_length", "not_a_number", "not_a_number"]
    assert "nothing to learn from" in rejects.messages[0]
    assert gate.warnings["missing_values"] == 1


def test_numbers_that_are_not_finite_are_missing() -> None:
    payloads = ({"v": [math.nan, 1.0, math.inf]}, {"v": [-math.inf] * 3}, {"v": [1.0, 1e200, math.nan]})
    rows, rejects, _ = decoded(ARRAY, "msgpack", *payloads)
    assert rows == [[None, 1.0, None]]
    assert rejects.reasons == ["all_missing", "out_of_range"]


@pytest.mark.parametrize("payload_format", FORMATS)
@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"temp": "21", "inner": {"flow": 1}}, "not_a_number"),
        ({"temp": True, "inner": {"flow": 1}}, "not_a_number"),
        ({"temp": 1, "inner": 5}, "field_missing"),
        ({"temp": 1, "inner": {"flow": {}}}, "not_a_number"),
        ([1, 2], "not_decodable"),
        ({}, "all_missing"),
    ],
)
def test_what_is_there_and_wrong_is_refused(payload_format: str, payload: object, reason: str) -> None:
    rows, rejects, _ = decoded(FLAT, payload_format, payload)
    assert (rows, rejects.reasons) == ([], [reason])


def test_the_input_side_of_a_pair_has_no_holes() -> None:
    binding = Binding.of(x=["a"], y=["a", "b"], same_space=False, missing=True)
    rows, rejects, _ = decoded(binding, "json", {"a": 1}, {"a": None, "b": 2}, {"b": 2})
    assert rows == [[1, None]]
    assert rejects.reasons == ["not_a_number", "field_missing"]


def test_without_leave_nothing_may_be_missing() -> None:
    strict = Binding.of(y=["temp"])
    batch = make_batch([dump("msgpack", {"temp": math.nan}), dump("msgpack", {"temp": None})])
    samples, rejects = make_decoder(strict, "msgpack").decode(batch)
    assert len(samples) == 0
    assert rejects.reasons == ["not_finite", "not_a_number"]


NODES = st.one_of(st.none(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=2), st.booleans())
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "temp": NODES,
        "inner": NODES
        | st.fixed_dictionaries(
            {}, optional={"flow": NODES, "deep": NODES | st.fixed_dictionaries({}, optional={"level": NODES})}
        ),
    },
)


@settings(deadline=None)
@given(OBJECTS, st.sampled_from(FORMATS))
def test_the_slow_path_accepts_what_the_fast_one_does(payload: dict[str, Any], payload_format: str) -> None:
    """Alone a broken record goes the slow way; a good one is decoded by both and must come out the same."""
    decoder = DECODERS[payload_format](FLAT)
    value = dump(payload_format, payload)
    rejects = Rejects()
    fields = decoder.decode([value], [0], rejects)
    slow = decoder._diagnosis
    if len(fields):
        assert np.array_equal(np.array(slow.decode(value).y), fields.y[0], equal_nan=True)
    else:
        assert len(rejects) == 1
