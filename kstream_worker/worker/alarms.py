"""The alarms of one partition: which are up, the list that shows them, and the outputs that tell of them."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kstream_worker.measures import Telemetry
from kstream_worker.records import Messages, Samples, TopicPartition, Transition
from kstream_worker.state.ledger import Ledger
from kstream_worker.worker.board import AlarmBoard
from kstream_worker.worker.stages import Encoder


class Place(NamedTuple):
    """Of the record that brings something about: offset, event time, and the time that outputs are stamped with."""

    offset: int
    time_ms: int
    stamp: int


class Alarms:
    """Keeps the books of alarms, shows keys in alarm on the board, and encodes transitions.

    A key may be in alarm for two reasons, a change and its silence; the board has one entry a key.

    Args:
        partition: of the input.
        ledger: its books.
        encoder: of outputs.
        board: that of the process.
        telemetry: measurements.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        partition: TopicPartition,
        ledger: Ledger,
        encoder: Encoder,
        board: AlarmBoard,
        telemetry: Telemetry,
        now_ms: Callable[[], int],
    ) -> None:
        self._partition = partition
        self._ledger = ledger
        self._encoder = encoder
        self._board = board
        self._telemetry = telemetry
        self._now_ms = now_ms
        self._shown: set[bytes] = set()

    def publish(self, key: bytes, place: Place, transition: Transition, ordinal: int = 0) -> Messages:
        """The output of a transition of this key at that record; see `Encoder.alarm`."""
        if transition.kind == "raised" and not transition.of_silence:
            self._ledger.alarms[key] = _details(place, transition)
        elif transition.kind == "cleared" and not transition.of_silence:
            self._ledger.alarms.pop(key, None)
        self.show(key)
        if place.offset >= self._ledger.live_from:
            silence = {"raised": "silent", "cleared": "returned"} if transition.of_silence else {}
            self._telemetry.transition(silence.get(transition.kind, transition.kind))
        return self._encoder.alarm(self._partition, key, *place, transition, self._now_ms(), ordinal)

    def publish_others(self, place: Place, transitions: Iterable[tuple[bytes, Transition]]) -> list[Messages]:
        """The outputs of transitions of keys that the record there is not of, numbered in this order."""
        ranks = Counter[bool]()
        outputs: list[Messages] = []
        for key, transition in transitions:
            outputs.append(self.publish(key, place, transition, ranks[transition.of_silence]))
            ranks[transition.of_silence] += 1
        return outputs

    def show(self, key: bytes) -> None:
        """Bring the list up to what the books say of this key."""
        if key in self._shown:  # the board counts what it cannot list: each entry once
            self._board.clear_alarm(_text(key))
            self._shown.discard(key)
        alarm, since = self._ledger.alarms.get(key), self._ledger.silent.since.get(key)
        if alarm is None and since is None:
            return
        silence = {} if since is None else {"silent_since": since}
        self._board.raise_alarm(_text(key), {"partition": self._partition.partition, **(alarm or {}), **silence})
        self._shown.add(key)

    def close(self) -> None:
        """Take all keys of this partition off the list."""
        for key in self._shown:
            self._board.clear_alarm(_text(key))
        self._shown.clear()
        self._ledger.alarms.clear()


def place_of(samples: Samples, row: int) -> Place:
    """Of this sample."""
    time_ms = int(samples.times[row])
    return Place(int(samples.offsets[row]), time_ms, time_ms if samples.stamps is None else int(samples.stamps[row]))


def _details(place: Place, transition: Transition) -> Mapping[str, object]:
    """What the list of keys in alarm shows, kept with the key's snapshot."""
    found = transition.explanation
    return {
        "offset": place.offset,
        "event_time": place.time_ms,
        "change_time": transition.change_time,
        "evidence": transition.evidence,
        "threshold": transition.threshold,
        "direction": transition.direction,
        "features": [name for name, _ in transition.features[:5]],
        "guarantee": transition.guarantee,
        **({} if found is None else {"kind": found.kind, "severity": found.severity}),
    }


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(key).decode()
