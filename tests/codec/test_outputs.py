"""Estimates and alarms: held to the schemas and to golden payloads, in order, each under an id of its own."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from codec_outputs import (
    EXAMPLES,
    INPUT,
    NOW_MS,
    SCHEMAS,
    encoder_of,
    example_messages,
    example_text,
    samples_of,
    scores_of,
    transition_of,
)
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kstream_worker.codec.identity import ORDINALS, RANKS, Identity
from kstream_worker.codec.partitions import murmur2, output_partition, partition_of
from kstream_worker.codec.payloads import Alarm, Contribution, Estimate, Explanation, ModelEstimate
from kstream_worker.records import Incident, TopicPartition, Transition
from kstream_worker.worker.silence import Silence

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))


@cache
def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def payload(value: bytes | None) -> dict[str, Any]:
    assert value is not None

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    decoded: dict[str, Any] = json.loads(value, parse_constant=refuse)
    return decoded


@pytest.mark.parametrize("name", NAMES)
def test_fixed_inputs_give_the_golden_bytes(name: str) -> None:
    assert example_text(name, example_messages()[name]) == (EXAMPLES / f"{name}.json").read_bytes()


def test_every_kind_of_output_has_an_example() -> None:
    assert set(NAMES) == set(example_messages())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dead_letter"])
def test_examples_follow_their_schema(name: str) -> None:
    validator(name.partition("_")[0]).validate(json.loads((EXAMPLES / f"{name}.json").read_bytes()))


@pytest.mark.parametrize(("kind", "structs"), [("estimate", (Estimate, ModelEstimate)), ("alarm", (Alarm,))])
def test_schemas_know_exactly_the_fields_that_are_written(kind: str, structs: tuple[type[msgspec.Struct], ...]) -> None:
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
    fields = [{field.name for field in msgspec.structs.fields(struct)} for struct in structs]
    assert set(schema["properties"]) == set.union(*fields)
    assert set(schema["required"]) == set.intersection(*fields) - {"key", "key_b64"}
    assert all(field["description"] for field in schema["properties"].values())


def test_the_schema_knows_exactly_what_an_explanation_says() -> None:
    schema = validator("alarm").schema["properties"]["explanation"]
    names = [field.name for field in msgspec.structs.fields(Explanation)]
    assert list(schema["properties"]) == schema["required"]
    assert sorted(schema["required"]) == sorted(names)
    assert schema["properties"]["contributions"]["items"]["required"] == [
        field.name for field in msgspec.structs.fields(Contribution)
    ]
    good = json.loads((EXAMPLES / "alarm_raised.json").read_bytes())
    told = good["explanation"]
    assert sum(one["value"] for one in told["contributions"]) == told["log_evidence"]
    assert not validator("alarm").is_valid({**good, "explanation": {**told, "kind": "quiet"}})
    assert not validator("alarm").is_valid({**good, "explanation": {**told, "change_seq_high": None}})
    assert validator("alarm").is_valid({**good, "explanation": None})


def test_numbers_of_an_explanation_that_are_not_finite_are_null() -> None:
    transition = transition_of()
    assert transition.explanation is not None
    summary = replace(transition.explanation.summaries[0], before=(math.inf, math.nan, 3), size=-math.inf)
    told = replace(transition.explanation, summaries=(summary,))
    sent = encoder_of().alarm(INPUT, b"k", 1, 2, 2, replace(transition, explanation=told), NOW_MS)
    found = payload(sent.values[0])
    validator("alarm").validate(found)
    first = found["explanation"]["summaries"][0]
    assert (first["before"], first["size"]) == ({"median": None, "spread": None, "n": 3}, None)
    assert found["explanation"]["evidence_ratio"] == 1.0485760125


@pytest.mark.parametrize(("kind", "name"), [("estimate", "estimate"), ("alarm", "alarm_raised")])
def test_schemas_refuse_what_is_not_in_the_contract(kind: str, name: str) -> None:
    good = json.loads((EXAMPLES / f"{name}.json").read_bytes())
    schema = validator(kind)
    assert not schema.is_valid({**good, "extra": 1})
    assert not schema.is_valid({**good, "key_b64": "AP8="})
    assert not schema.is_valid({k: v for k, v in good.items() if k != "key"})
    assert not schema.is_valid({k: v for k, v in good.items() if k != "offset"})
    assert not schema.is_valid({**good, "id": good["id"].upper() + "0"})


def test_the_schema_names_all_ways_in_which_an_alarm_clears() -> None:
    good = json.loads((EXAMPLES / "alarm_expired.json").read_bytes())
    schema = validator("alarm")
    for reason in ("recovered", "rearmed", "superseded", "returned", "forgotten", "expired"):
        assert schema.is_valid({**good, "reason": reason})
    assert not schema.is_valid({**good, "reason": "temp"})
    assert schema.is_valid({**good, "reason": "temp", "transition": "raised"})


def test_estimates_of_a_model_have_its_values_by_name_and_those_of_ratios_have_none() -> None:
    good = json.loads((EXAMPLES / "estimate_model.json").read_bytes())
    schema = validator("estimate")
    assert good["values"] == {"cleaned.temp": 21.25, "subspace": "outlet"}
    assert json.loads((EXAMPLES / "estimate_model_warming.json").read_bytes())["values"] == {
        "cleaned.temp": None,
        "subspace": None,
    }
    assert not schema.is_valid({name: value for name, value in good.items() if name != "model"})
    assert not schema.is_valid({**good, "values": {"cleaned.temp": [1]}})
    (plain,) = encoder_of().estimates(INPUT, samples_of([b"a"]), scores_of(1))
    assert not {"model", "values"} & set(payload(plain.values[0]))


def test_a_model_without_alarms_has_no_threshold() -> None:
    scores = scores_of(2)
    scores.estimates = np.zeros((2, 2))
    scores.threshold[:] = math.inf
    (found,) = encoder_of(model="forecast").estimates(INPUT, samples_of([b"a", b"b"]), scores)
    said = payload(found.values[1])
    validator("estimate").validate(said)
    assert said["threshold"] is None
    assert said["values"] == {"cleaned.temp": 0.0, "subspace": "intake"}


KEYS = st.one_of(st.binary(max_size=6), st.text(max_size=6).map(str.encode), st.just(b'"\n\\'))
FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(KEYS, FLOATS, FLOATS, st.floats(0, allow_nan=False)), min_size=1, max_size=8))
def test_estimates_read_back_as_what_was_scored(rows: list[tuple[bytes, float, float, float]]) -> None:
    samples, scores = samples_of([row[0] for row in rows]), scores_of(len(rows))
    scores.log_ratio = np.array([row[1] for row in rows])
    scores.divergence = np.array([row[2] for row in rows])
    scores.evidence = np.array([row[3] for row in rows])
    (messages,) = encoder_of().estimates(INPUT, samples, scores)
    assert (messages.partition, messages.keys) == (TopicPartition("drift-estimates", 2), samples.keys)
    assert messages.timestamps == samples.times.tolist()
    validator("estimate").validate(payload(messages.values[0]))
    for i, (key, log_ratio, divergence, evidence) in enumerate(rows):
        found = payload(messages.values[i])
        assert (base64.b64decode(found["key_b64"]) if "key_b64" in found else found["key"].encode()) == key
        assert found["log_ratio"] == (log_ratio if math.isfinite(log_ratio) else None)
        assert found["divergence"] == (divergence if math.isfinite(divergence) else None)
        assert found["evidence"] == min(evidence, 1.7976931348623157e308)
        assert (found["offset"], found["seq"], found["event_time"]) == (1000 + i, i + 1, messages.timestamps[i])


def test_many_estimates_keep_their_order() -> None:
    n = 1_000
    (messages,) = encoder_of().estimates(INPUT, samples_of([b"k\n%d" % i for i in range(n)]), scores_of(n))
    assert [payload(value)["offset"] for value in messages.values] == list(range(1000, 1000 + n))
    assert len(messages.keys) == len(messages.timestamps) == len(messages.headers) == n


def test_every_nth_estimate_is_counted_by_key_and_the_first_is_published() -> None:
    samples, scores = samples_of([b"k"] * 10), scores_of(10)
    (messages,) = encoder_of(estimate_every=4).estimates(INPUT, samples, scores)
    assert [payload(value)["seq"] for value in messages.values] == [1, 4, 8]
    assert len(messages) == len(messages.keys) == 3


@pytest.mark.parametrize("every", [1, 2])
def test_rows_choose_what_is_published(every: int) -> None:
    samples, scores = samples_of([b"k%d" % i for i in range(6)]), scores_of(6)
    encoder = encoder_of(estimate_every=every)
    (some,) = encoder.estimates(INPUT, samples, scores, slice(2, None))
    (same,) = encoder.estimates(INPUT, samples, scores, np.arange(2, 6))
    assert some == same
    assert some.keys == [b"k2", b"k3", b"k4", b"k5"][every - 1 :: every]
    assert encoder.estimates(INPUT, samples, scores, slice(0, 0)) == []


def test_estimates_do_not_depend_on_the_cut_or_on_binary_neighbours() -> None:
    keys = [b"a", b"\xff", b"b", b"c"]
    samples, scores = samples_of(keys), scores_of(4)
    encoder = encoder_of()
    (whole,) = encoder.estimates(INPUT, samples, scores)
    single = [encoder.estimates(INPUT, samples, scores, slice(i, i + 1))[0].values[0] for i in range(4)]
    assert whole.values == single


def test_other_partition_counts_follow_the_key() -> None:
    keys = [b"foobar", b"21", b"foobar", b"\xff"]
    placed = encoder_of(partitions=3).estimates(INPUT, samples_of(keys), scores_of(4))
    assert sum(map(len, placed)) == 4
    for messages in placed:
        assert {partition_of(key, 3) for key in messages.keys if key is not None} == {messages.partition.partition}
        offsets = [payload(value)["offset"] for value in messages.values]
        assert offsets == sorted(offsets)
    alarm = encoder_of(partitions=3).alarm(INPUT, b"foobar", 7, 8, 9, transition_of(), NOW_MS)
    assert alarm.partition == TopicPartition("drift-alarms", partition_of(b"foobar", 3))


def test_an_alarm_says_how_far_it_lags() -> None:
    message = encoder_of().alarm(INPUT, b"pump-7", 1041, 1_760_000_041_000, 1_760_000_041_500, transition_of(), NOW_MS)
    found = payload(message.values[0])
    assert found["lag_s"] == 0.5
    assert found["features"] == [{"name": "temp", "weight": 0.75}, {"name": "flow", "weight": 0.25}]
    assert (message.keys, message.timestamps) == ([b"pump-7"], [1_760_000_041_500])


def test_all_alarms_of_an_incident_have_its_id_and_no_others() -> None:
    encoder = encoder_of()

    def incident_of(transition: Transition, key: bytes = b"k", offset: int = 5) -> Any:
        return payload(encoder.alarm(INPUT, key, offset, 6, 7, transition, NOW_MS).values[0])["incident"]

    first = transition_of()
    again = replace(first, seq=2000, incident=Incident(1042, 1_760_000_041_000, repeat=3))
    over = replace(transition_of("cleared", "recovered"), seq=3000)
    assert incident_of(first) == incident_of(again, offset=900) == incident_of(over, offset=1900)
    sample, later = Incident(1043, 1_760_000_041_000), Incident(1042, 1_760_000_041_001)
    silences = [
        Silence(slot=0, seq=seq, since_ms=since, limit_ms=1000) for seq, since in ((1042, 5), (1042, 6), (9, 5))
    ]
    others = [
        incident_of(first),
        incident_of(first, key=b"l"),
        *(incident_of(replace(first, incident=one)) for one in (sample, later)),
        *(incident_of(silence.raised(2000)) for silence in silences),
    ]
    assert len(set(others)) == len(others)
    assert [incident_of(one.returned(0, 9000)) for one in silences] == others[-3:]
    assert incident_of(transition_of("notice", "not_stationary")) is None


def test_a_key_may_clear_and_raise_at_one_record() -> None:
    encoder = encoder_of()
    ids = {
        payload(encoder.alarm(INPUT, b"k", 5, 6, 7, transition_of(kind), NOW_MS).values[0])["id"]
        for kind in ("raised", "cleared")
    }
    assert len(ids) == 2


def test_any_number_of_keys_may_expire_at_one_record() -> None:
    encoder = encoder_of()

    def id_of(offset: int, reason: str, ordinal: int = 0, kind: str = "cleared") -> str:
        message = encoder.alarm(INPUT, b"k", offset, 6, 7, transition_of(kind, reason), NOW_MS, ordinal)
        return str(payload(message.values[0])["id"])

    ranks = [0, 1, 2, 3, RANKS - 1, RANKS, 2**40 - 1]
    ids = [id_of(offset, "expired", rank) for offset in (4, 5, 6) for rank in ranks]
    ids += [id_of(offset, "forgotten", rank) for offset in (4, 5, 6) for rank in ranks]  # rank 0: the record's own key
    ids += [id_of(offset, "temp", 0, "raised") for offset in (4, 5, 6)]
    assert len(set(ids)) == len(ids)


def test_a_silence_has_ids_of_its_own_beside_those_of_the_keys_other_alarm() -> None:
    encoder = encoder_of()

    def id_of(transition: Transition, ordinal: int) -> str:
        message = encoder.alarm(INPUT, b"k", 4, 6, 7, transition, NOW_MS, ordinal)
        return str(payload(message.values[0])["id"])

    silence = Silence(slot=0, seq=3, since_ms=5, limit_ms=1000)
    reasons = ("expired", "forgotten")
    ends = [silence.dropped(reason, 2000) for reason in reasons]
    others = [transition_of("cleared", reason) for reason in reasons]
    ids = [id_of(one, rank) for one in (silence.raised(2000), *ends, *others) for rank in (0, 1, RANKS)]
    ids += [id_of(silence.returned(0, 2000), 0), id_of(transition_of(), 0)]
    assert len(set(ids)) == len(ids)


def test_a_feature_may_have_the_name_of_a_way_in_which_alarms_clear() -> None:
    kinds = ("raised", "cleared")
    raised, cleared = (
        encoder_of().alarm(INPUT, b"k", 4, 6, 7, transition_of(kind, "expired"), NOW_MS) for kind in kinds
    )
    assert payload(raised.values[0])["id"] != payload(cleared.values[0])["id"]


def test_an_id_does_not_depend_on_the_wall_clock() -> None:
    first, second = (encoder_of().alarm(INPUT, b"k", 5, 6, 7, transition_of(), now) for now in (7, 8))
    assert payload(first.values[0])["id"] == payload(second.values[0])["id"]


# ---- ids

OFFSETS = st.integers(0, 2**61 - 1)


@given(st.lists(OFFSETS, unique=True, max_size=50))
def test_ids_of_one_partition_never_collide(offsets: list[int]) -> None:
    identity = Identity("app", 1, "estimate", INPUT)
    column = np.array(offsets, dtype=np.int64)
    ids = [text for ordinal in range(ORDINALS) for text in identity.ids(column, ordinal)]
    assert len(set(ids)) == len(ids) == ORDINALS * len(offsets)
    assert all(len(text) == 32 for text in ids)


@given(st.sets(st.tuples(st.integers(0, 2**47 - 1), st.integers(0, RANKS - 1)), max_size=50))
def test_ids_of_expired_keys_never_collide(places: set[tuple[int, int]]) -> None:
    identity = Identity("app", 1, "expired-0", INPUT, RANKS)
    assert len({identity.ids(np.array([offset]), rank)[0] for offset, rank in places}) == len(places)


@pytest.mark.parametrize("ordinal", [-1, ORDINALS])
def test_a_record_has_no_more_outputs_than_its_ids_can_tell_apart(ordinal: int) -> None:
    with pytest.raises(ValueError, match=f"ordinal {ordinal} of an output is outside 0 to 3"):
        Identity("app", 1, "alarm", INPUT).ids(np.array([5]), ordinal)


def test_ids_differ_by_everything_that_identifies_an_output() -> None:
    column = np.arange(100)
    kinds = [
        Identity("app", 1, "estimate", TopicPartition("t", 1)),
        Identity("ap", 1, "estimate", TopicPartition("t", 1)),
        Identity("app", 2, "estimate", TopicPartition("t", 1)),
        Identity("app", 1, "alarm", TopicPartition("t", 1)),
        Identity("app", 1, "estimate", TopicPartition("t1", 1)),
        Identity("app", 1, "estimate", TopicPartition("t", 11)),
    ]
    assert len({text for identity in kinds for text in identity.ids(column)}) == 600


def test_ids_are_fixed_for_ever() -> None:
    assert Identity("drift", 1, "estimate", INPUT).ids(np.array([0, 2**61 - 1])) == [
        "b6f85812673a7dabb0e43c64d31c60fe",
        "b6f85812673a7dab8ba573225b2e50d7",
    ]


# ---- partitions


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=40))
def test_murmur2_agrees_with_the_client(key: bytes) -> None:
    from kafka.partitioner.default import murmur2 as reference

    assert murmur2(key) == reference(key) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(0, 11), st.integers(1, 9))
def test_output_partitions_exist(key: bytes, number: int, count: int) -> None:
    assert output_partition(key, number, 12, 12) == number
    assert 0 <= output_partition(key, number, 12, count) < count
    assert output_partition(None, number, 12, count) == number % count
