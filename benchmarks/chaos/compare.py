"""Outputs and state of the disturbed run held against the oracle's, key by key."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import msgspec

from kstream_worker.state.format import CorruptState, Header, Snapshot, decode_header, decode_snapshot, input_key

_EXAMPLES = 5


class Output(NamedTuple):
    """An output, as far as it matters: which one it is, and a digest of what it says."""

    key: bytes
    identity: str
    digest: bytes


class _Named(msgspec.Struct):
    id: str


@dataclass
class Tally:
    """What differs; all zero but `outputs` and `state_keys_compared` when nothing does.

    Attributes:
        lost: outputs of the oracle that are missing.
        doubled: further copies of an output.
        strange: outputs that the oracle did not make.
        out_of_order: outputs of a key behind one that should follow them.
        different: outputs that say something else.
        state_mismatches: keys whose model differs, or which live in one of both alone.
        clock_mismatches: keys whose time of the last record differs.
    """

    outputs: int = 0
    lost: int = 0
    doubled: int = 0
    strange: int = 0
    out_of_order: int = 0
    different: int = 0
    state_keys_compared: int = 0
    state_mismatches: int = 0
    clock_mismatches: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        counted = (self.lost, self.doubled, self.strange, self.out_of_order, self.different)
        return not any(counted) and not self.state_mismatches and not self.clock_mismatches

    def add(self, other: Tally) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        del self.examples[4 * _EXAMPLES :]

    def example(self, text: str) -> None:
        if len(self.examples) < _EXAMPLES:
            self.examples.append(text)


Row = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]


def outputs_of(kind: str, rows: Iterable[Row]) -> list[Output]:
    """Outputs of one topic and partition, in order, from (key, value, headers)."""
    make = {"estimates": _estimate, "alarms": _alarm, "dead-letters": _letter}[kind]
    return [make(key or b"", value or b"", headers) for key, value, headers in rows]


def _estimate(key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]) -> Output:
    return Output(key, msgspec.json.decode(value, type=_Named).id, _digest(value))


def _alarm(key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]) -> Output:
    said = json.loads(value)
    said.pop("lag_s")  # the one field that the wall clock decides
    return Output(key, said["id"], _digest(json.dumps(said, sort_keys=True).encode()))


def _letter(key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]) -> Output:
    offset = dict(headers)["__connect.errors.offset"].decode()
    return Output(key, offset, _digest(value + b"".join(name.encode() + content for name, content in headers)))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()


def compare_outputs(found: Sequence[Output], wanted: Sequence[Output], place: str) -> Tally:
    """Same outputs per key, in the same order, each once."""
    tally = Tally(outputs=len(found))
    mine, theirs = _by_key(found), _by_key(wanted)
    for key in mine.keys() | theirs.keys():
        _compare_key(mine.get(key, []), theirs.get(key, []), f"{place} key {key!r}", tally)
    return tally


def _by_key(outputs: Iterable[Output]) -> dict[bytes, list[Output]]:
    sorted_out: dict[bytes, list[Output]] = defaultdict(list)
    for output in outputs:
        sorted_out[output.key].append(output)
    return sorted_out


def _compare_key(found: Sequence[Output], wanted: Sequence[Output], place: str, tally: Tally) -> None:
    if found == wanted:
        return
    order = {output.identity: n for n, output in enumerate(wanted)}
    digests = {output.identity: output.digest for output in wanted}
    counts = Counter(output.identity for output in found)
    missing = [identity for identity in order if identity not in counts]
    strange = [identity for identity in counts if identity not in order]
    twice = [identity for identity, n in counts.items() if n > 1]
    other = [o.identity for o in found if o.identity in digests and o.digest != digests[o.identity]]
    numbers = [order[o.identity] for o in found if o.identity in order]
    behind = sum(after < before for before, after in itertools.pairwise(numbers))
    tally.lost += len(missing)
    tally.strange += len(strange)
    tally.doubled += sum(n - 1 for n in counts.values() if n > 1)
    tally.different += len(other)
    tally.out_of_order += behind
    for what, which in (("lost", missing), ("strange", strange), ("doubled", twice), ("different", other)):
        if which:
            first = f"number {order[which[0]]} of {len(wanted)}" if which[0] in order else "unknown"
            tally.example(f"{place}: {len(which)} {what}, first {which[0]} ({first})")


@dataclass
class State:
    """The last word on each key of one partition of the state topic."""

    header: Header | None = None
    keys: dict[bytes, Snapshot] = field(default_factory=dict)
    corrupt: list[str] = field(default_factory=list)


def state_of(rows: Iterable[tuple[bytes | None, bytes | None]]) -> State:
    """The state that (key, value) records of one partition add up to."""
    last: dict[bytes, bytes | None] = {}
    for key, value in rows:
        last[key or b""] = value
    state = State()
    for record_key, value in last.items():
        try:
            key = input_key(record_key)
            if value is None:
                continue
            if key is None:
                state.header = decode_header(value)
            else:
                state.keys[key] = decode_snapshot(value)
        except CorruptState as error:
            state.corrupt.append(f"{record_key!r}: {error}")
    if state.header is not None:
        now = state.header.generation
        state.keys = {key: snapshot for key, snapshot in state.keys.items() if snapshot.generation == now}
    return state


def compare_state(found: State, wanted: State, place: str) -> Tally:
    """Same live keys, and the same model of each, byte for byte."""
    tally = Tally(state_keys_compared=len(found.keys.keys() & wanted.keys.keys()))
    tally.state_mismatches += len(found.corrupt)
    for text in found.corrupt:
        tally.example(f"{place}: corrupt {text}")
    for key in sorted(found.keys.keys() ^ wanted.keys.keys()):
        tally.state_mismatches += 1
        tally.example(f"{place} key {key!r}: lives only {'here' if key in found.keys else 'in the oracle'}")
    for key in sorted(found.keys.keys() & wanted.keys.keys()):
        mine, theirs = found.keys[key], wanted.keys[key]
        if mine.model != theirs.model:
            tally.state_mismatches += 1
            tally.example(f"{place} key {key!r}: the models differ (positions {mine.position}, {theirs.position})")
        if mine.seen_ms != theirs.seen_ms:
            tally.clock_mismatches += 1
            tally.example(f"{place} key {key!r}: last seen {mine.seen_ms}, in the oracle {theirs.seen_ms}")
    return tally
