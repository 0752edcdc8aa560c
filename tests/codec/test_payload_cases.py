"""Payloads as real devices and pipelines sent them, each with its right answer; local data, not shipped."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codec_batches import make_batch, make_decoder

from kstream_worker.codec import Binding

DATA = Path(os.environ.get("KSTREAM_DATA") or Path(__file__).parents[3] / "shared" / "data")
CASES_FILE = DATA / "payload_cases.jsonl"

BINDING = Binding.of(y=["values.temp", "values.flow"], timestamp="ts", key="device")
VECTOR = Binding.of(y="values", dims=3, timestamp="ts", key="device")

# Accepted in the end by options that do not exist yet; until then the strict answer.
STRICT = {
    "boolean-value": "not_a_number",  # mapping to 0/1 is an option
    "null-one-field": "not_a_number",  # imputation is an option
    "nan-literal": "not_decodable",  # imputation is an option
    "nan-quoted": "not_a_number",  # imputation is an option
    "numbers-as-strings": "not_a_number",  # coercion is an option
    "trailing-nul": "not_decodable",  # stripping is an option
    "utf8-bom": "not_decodable",  # stripping is an option
    "confluent-header-json": "not_decodable",  # registry framing is an option
    "near-max-negative": "out_of_range",  # clipping is an option
}
# Refused only where features are bound by a pattern; with explicit fields further ones are ignored.
IGNORED_FIELDS = {"dimension-grows"}


def load() -> list[dict[str, Any]]:
    if not CASES_FILE.exists():
        return []
    return [json.loads(line) for line in CASES_FILE.read_text(encoding="utf-8").splitlines()]


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


CASES: list[Any] = load() or [pytest.param({}, marks=pytest.mark.skip(reason=f"no local data at {CASES_FILE}"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.get("id", "absent"))
def test_payload_case(case: dict[str, Any]) -> None:
    value, key = decoded(case["payload_b64"]), decoded(case["key_b64"])
    decoder = make_decoder(VECTOR if case["id"] == "vector-value" else BINDING)
    samples, rejects = decoder.decode(make_batch([value], keys=[key]))
    if case["id"] in STRICT:
        assert rejects.reasons == [STRICT[case["id"]]]
    elif case["expected"] == "reject" and case["id"] not in IGNORED_FIELDS:
        assert len(rejects) == 1
        assert len(samples) == 0
        assert rejects.messages[0].isascii() or rejects.messages[0].isprintable()
    else:
        assert not rejects.messages
        assert len(samples) + len(samples.forget) == 1
        assert bool(np.isfinite(samples.y).all())


@pytest.mark.skipif(not CASES_FILE.exists(), reason=f"no local data at {CASES_FILE}")
def test_all_cases_in_one_batch_answer_as_alone() -> None:
    cases = load()
    values = [decoded(case["payload_b64"]) for case in cases]
    keys = [decoded(case["key_b64"]) for case in cases]
    decoder = make_decoder(BINDING)
    samples, rejects = decoder.decode(make_batch(values, keys=keys))
    alone = [decoder.decode(make_batch([value], keys=[key])) for value, key in zip(values, keys, strict=True)]
    assert rejects.reasons == [reason for _, single in alone for reason in single.reasons]
    assert samples.y.tobytes() == b"".join(single.y.tobytes() for single, _ in alone)
    assert samples.keys == [key for single, _ in alone for key in single.keys]
