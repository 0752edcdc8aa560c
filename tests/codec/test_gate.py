"""Sizes, keys and event times; tombstones; and the limits beyond which work stops."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from codec_batches import BUS_TIME, make_batch, make_decoder
from hypothesis import given
from hypothesis import strategies as st

from kstream_worker.codec import Binding
from kstream_worker.errors import Fatal
from kstream_worker.gate import MAX_KEY_BYTES, NEWEST_MS, OLDEST_MS, Gate, RejectPolicy, epoch_ms
from kstream_worker.records import Rejects, TopicPartition

ONE = Binding.of(y=["v"])
TIMED = Binding.of(y=["v"], timestamp="ts")
GOOD = b'{"v":1}'


def test_too_large_values_are_refused_unread() -> None:
    decoder = make_decoder(ONE, gate=Gate(max_value_bytes=20))
    samples, rejects = decoder.decode(make_batch([GOOD, b'{"v":1,"pad":"xxxxxxxxxx"}', b"x" * 21, GOOD]))
    assert samples.offsets.tolist() == [100, 103]
    assert (rejects.positions, rejects.reasons) == ([1, 2], ["too_large", "too_large"])
    assert "21 bytes, the limit is 20" in rejects.messages[1]


def test_a_value_at_the_limit_is_accepted() -> None:
    samples, _ = make_decoder(ONE, gate=Gate(max_value_bytes=len(GOOD))).decode(make_batch([GOOD]))
    assert len(samples) == 1


def test_a_null_value_forgets_its_key_in_its_place() -> None:
    batch = make_batch([GOOD, None, b"broken", GOOD, None, None], keys=[b"a", b"b", b"a", b"a", b"a", None])
    samples, rejects = make_decoder(ONE).decode(batch)
    assert samples.keys == [b"a", b"a"]
    assert samples.forget == [(1, b"b", 101, BUS_TIME + 101), (2, b"a", 104, BUS_TIME + 104)]
    assert list(zip(rejects.positions, rejects.reasons, strict=True)) == [(2, "not_decodable"), (5, "null_key")]


def test_a_batch_of_tombstones_has_no_samples() -> None:
    samples, rejects = make_decoder(Binding.of(x=["a"], y=["b"])).decode(make_batch([None, None]))
    assert (len(samples), len(samples.forget), len(rejects)) == (0, 2, 0)
    assert samples.x is not None
    assert samples.x.shape == samples.y.shape == (0, 1)


def test_an_empty_batch_is_no_problem() -> None:
    samples, rejects = make_decoder(ONE).decode(make_batch([]))
    assert (len(samples), len(rejects), samples.y.shape) == (0, 0, (0, 1))


def test_null_keys_are_refused_or_spread_by_offset() -> None:
    batch = make_batch([GOOD] * 4, keys=[None, b"k", None, None])
    samples, rejects = make_decoder(ONE).decode(batch)
    assert (samples.keys, rejects.reasons) == ([b"k"], ["null_key"] * 3)
    samples, rejects = make_decoder(ONE, gate=Gate(null_key_slots=3)).decode(batch)
    assert samples.keys == [b"offset-1", b"k", b"offset-0", b"offset-1"]
    assert not rejects.positions


def test_empty_and_binary_keys_are_keys() -> None:
    samples, _ = make_decoder(ONE).decode(make_batch([GOOD] * 2, keys=[b"", b"\x00\xff"]))
    assert samples.keys == [b"", b"\x00\xff"]


def test_huge_keys_are_refused_wherever_they_come_from() -> None:
    long = b"k" * (MAX_KEY_BYTES + 1)
    batch = make_batch([GOOD, None, GOOD], keys=[long, long, long[1:]])
    samples, rejects = make_decoder(ONE).decode(batch)
    assert (rejects.positions, rejects.reasons) == ([0, 1], ["too_large", "too_large"])
    assert samples.keys == [long[1:]]
    bound = make_decoder(Binding.of(y=["v"], key="id"))
    _, rejects = bound.decode(make_batch([b'{"v":1,"id":"%b"}' % long]))
    assert rejects.reasons == ["too_large"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (1_760_000_000_000, 1_760_000_000_000),
        (1_760_000_000_000.75, 1_760_000_000_000),
        ("2025-10-09T08:53:20Z", 1_760_000_000_000),
        ("2025-10-09T10:53:20+0200", 1_760_000_000_000),
        ("2025-10-09T10:53:20.123456+02:00", 1_760_000_000_123),
        ("2025-10-09 08:53:20", 1_760_000_000_000),
        ("20251009T085320Z", 1_760_000_000_000),
        (datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC), 1_760_000_000_000),
        (OLDEST_MS, OLDEST_MS),
        (OLDEST_MS - 1, None),
        (NEWEST_MS, None),
        (1_760_000_000, None),
        (-62_135_596_800_000, None),
        (45_147_364_669_817, None),
        (10**400, None),
        (float("nan"), None),
        (float("inf"), None),
        ("1970-01-01T00:00:36Z", None),
        ("0001-01-01T00:00:00", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("yesterday", None),
        ("1760000000000", None),
        ("", None),
        (True, None),
        (None, None),
        ([1_760_000_000_000], None),
    ],
)
def test_event_times(found: object, expected: int | None) -> None:
    assert epoch_ms(found) == expected


@given(st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31)))
def test_text_times_are_exact(moment: datetime) -> None:
    expected = (moment - datetime(1970, 1, 1)) // (datetime(1970, 1, 2) - datetime(1970, 1, 1)) * 86_400_000
    within = ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1000 + moment.microsecond // 1000
    assert epoch_ms(moment.isoformat()) == epoch_ms(moment.isoformat() + "Z") == expected + within


@pytest.mark.parametrize(
    ("field", "warning"),
    [
        (b"", "timestamp_missing"),
        (b',"ts":null', "timestamp_missing"),
        (b',"ts":36000', "timestamp_absurd"),
        (b',"ts":"soon"', "timestamp_absurd"),
        (b',"ts":true', "timestamp_absurd"),
        (b',"ts":[1]', "timestamp_absurd"),
        (b',"ts":99999999999999999999999999', "timestamp_absurd"),
    ],
)
def test_a_missing_or_absurd_time_is_replaced_by_the_bus_and_counted(field: bytes, warning: str) -> None:
    decoder = make_decoder(TIMED)
    own = b'{"v":1,"ts":1760000000000}'
    samples, rejects = decoder.decode(make_batch([own, b'{"v":2%b}' % field, own]))
    assert not rejects.positions
    assert samples.y[:, 0].tolist() == [1.0, 2.0, 1.0]
    assert samples.times.tolist() == [1_760_000_000_000, BUS_TIME + 101, 1_760_000_000_000]
    assert decoder.warnings == {warning: 1}


def test_a_bound_time_without_any_fallback_is_refused() -> None:
    batch = make_batch([b'{"v":1,"ts":36000}', b'{"v":1,"ts":1760000000000}'], timestamps=[-1, -1])
    samples, rejects = make_decoder(TIMED).decode(batch)
    assert samples.times.tolist() == [1_760_000_000_000]
    assert rejects.reasons == ["bad_timestamp"]
    assert "36000" in rejects.messages[0]


def test_without_any_time_it_is_unknown() -> None:
    samples, rejects = make_decoder(ONE).decode(make_batch([GOOD, None], timestamps=[-1, -1]))
    assert (samples.times.tolist(), samples.forget[0][3], len(rejects)) == ([-1], -1, 0)


# ---- limits


def observe(policy: RejectPolicy, pattern: str, cut: int = 0, partition: int = 0) -> int | None:
    """Feed records, `x` for a refused one, in batches of `cut`; the number of the record that stopped the work."""
    cut = cut or len(pattern)
    for start in range(0, len(pattern), cut):
        batch = make_batch([GOOD] * len(pattern[start : start + cut]), first=start)
        batch.partition = TopicPartition("telemetry", partition)
        rejects = Rejects()
        for row, record in enumerate(pattern[start : start + cut]):
            if record == "x":
                rejects.add(row, "field_missing" if row % 3 else "not_decodable", "values.temp: no such field")
        try:
            policy.observe(batch, rejects)
        except Fatal as error:
            return int(str(error).partition("offset ")[2].partition(":")[0])
    return None


def policy(ratio: float = 0.5, window: int = 10, consecutive: int = 5) -> RejectPolicy:
    return RejectPolicy(max_reject_ratio=ratio, window_records=window, max_consecutive_rejects=consecutive)


def test_a_run_of_rejects_stops_the_work() -> None:
    assert observe(policy(), "xxxx.xxxx.") is None
    assert observe(policy(), "..xxxxx") is not None


def test_a_share_of_rejects_above_the_limit_stops_the_work() -> None:
    assert observe(policy(), "x.x.x.x.x.x.x.x.x.") is None
    assert observe(policy(), "x.x.x.x.xx") is not None
    assert observe(policy(ratio=1.0), "xxxx.xxxx.xxxx.") is None


def test_a_short_beginning_is_not_judged_by_its_share() -> None:
    assert observe(policy(), "xxx.xx.x.") is None


def test_partitions_are_judged_apart() -> None:
    shared = policy()
    assert observe(shared, "xxxx", partition=0) is None
    assert observe(shared, "xxxx", partition=1) is None
    assert observe(shared, "x", partition=0) is not None


@given(st.text("x.", min_size=1, max_size=60), st.integers(1, 60), st.sampled_from([0.2, 0.5]), st.integers(1, 8))
def test_limits_do_not_depend_on_the_cut(pattern: str, cut: int, ratio: float, consecutive: int) -> None:
    def reference() -> bool:
        run = 0
        for i, record in enumerate(pattern):
            run = run + 1 if record == "x" else 0
            window = pattern[i - 9 : i + 1] if i >= 9 else ""
            if run >= consecutive or (record == "x" and window.count("x") > ratio * 10):
                return True
        return False

    stopped = {observe(policy(ratio, 10, consecutive), pattern, size) is not None for size in (0, 1, cut)}
    assert stopped == {reference()}


def test_the_message_names_place_reason_example_and_remedy() -> None:
    batch = make_batch([GOOD] * 5)
    reasons = ["not_decodable", "field_missing", "field_missing", "not_a_number", "bad_key"]
    rejects = Rejects([0, 1, 2, 3, 4], reasons, ["m"] * 5)
    with pytest.raises(Fatal, match=r"telemetry\[2\]: 5 records in a row were refused, most often as field_missing"):
        policy().observe(batch, rejects)
    with pytest.raises(Fatal, match=r"last at offset 102: m\. .*input\.\*.*gate\.max_consecutive_rejects"):
        policy().observe(batch, rejects)
