"""Records that are produced while faults strike: changes, silence, one-shot keys, tombstones, rejects, gaps.

What is sent follows from the seed; how far it gets follows from the time. The oracle reads back what arrived.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from benchmarks.job import EPOCH_MS

_TICK_MS = 1000  # event time between two samples of a key
_REJECTS = (b"{broken", b'{"ts": 1, "y": [1.0]}', b"{}", b"[1, 2]", b'{"y": [1e200, 0], "x": [0, 0]}', b"")


class Sent(NamedTuple):
    partition: int
    key: bytes
    value: bytes | None
    timestamp: int


@dataclass(frozen=True)
class Shape:
    """What the records are like.

    Attributes:
        steady: keys that talk all the time.
        moody: keys that fall silent for longer than the time to live, and come back.
        change_every: ticks between two changes of a key.
        ttl_s: `state.ttl` of the worker that reads them.
    """

    mode: str = "stream"
    partitions: int = 6
    steady: int = 160
    moody: int = 40
    change_every: int = 700
    ttl_s: int = 200
    seed: int = 1

    def ticks(self) -> Iterator[list[Sent]]:
        """The records of one instant after the other, without end."""
        tick = 0
        while True:
            yield self._tick(tick)
            tick += 1

    def _tick(self, tick: int) -> list[Sent]:
        rng = np.random.default_rng((self.seed, tick))
        count = self.steady + self.moody
        live, reference = rng.standard_normal((2, count + 1, 2))
        whims = rng.random(count + 1)
        stamp = EPOCH_MS + _TICK_MS * tick
        talking = [k for k in range(count) if k < self.steady or self._talks(k, tick)]
        sent = [self._record(k, tick, live[k], reference[k], whims[k], stamp) for k in talking]
        once = Sent(tick % self.partitions, b"once-%d" % tick, self._value(stamp, live[-1], reference[-1]), stamp)
        return [*sent, once]

    def _talks(self, k: int, tick: int) -> bool:
        return (tick + 37 * k) // self.ttl_s % 4 < 2  # two times to live of talk, two of silence

    def _record(self, k: int, tick: int, live: np.ndarray, reference: np.ndarray, whim: float, stamp: int) -> Sent:
        key = b"\xff\xfe-%d" % k if k % 50 == 7 else b"pump-%d" % k
        at = k % self.partitions
        if whim < 0.003:
            return Sent(at, key, _REJECTS[(k + tick) % len(_REJECTS)], stamp)
        if whim < 0.004:
            return Sent(at, key, None, stamp)
        event = stamp
        if whim < 0.009:
            event -= 30_000  # late
        elif whim < 0.012:
            event += 20_000 if whim < 0.011 else 86_400_000  # a fast clock, and one that was never set
        return Sent(at, key, self._value(event, self._changed(k, tick, live), reference), stamp)

    def _changed(self, k: int, tick: int, live: np.ndarray) -> np.ndarray:
        phase = (tick + 61 * k) // self.change_every
        kind = (phase * 7 + k) % 4
        shifted = np.array([2.5 if kind == 1 else -1.5 if kind == 3 else 0.0, 0.0])
        changed: np.ndarray = live * (2.0 if kind == 2 else 1.0) + shifted
        return changed

    def _value(self, event_ms: int, live: np.ndarray, reference: np.ndarray) -> bytes:
        value: dict[str, object] = {"ts": event_ms, "y": [round(v, 5) for v in live.tolist()]}
        if self.mode == "explicit":
            value["x"] = [round(v, 5) for v in reference.tolist()]
        return json.dumps(value).encode()


class Traffic:
    """Produces at a steady rate in a thread; short transactions beside it, some aborted, leave gaps in the offsets.

    Args:
        bootstrap: the brokers.
        topic: where to.
        shape: what.
        rate: records a second.
    """

    def __init__(self, bootstrap: str, topic: str, shape: Shape, rate: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._shape = shape
        self._rate = rate
        self._stop = threading.Event()
        self._acked = dict.fromkeys(range(shape.partitions), -1)
        self._recent: deque[Sent] = deque(maxlen=50)
        self.acknowledged = 0
        self.failed = 0
        self.transactions = 0
        self._threads = [
            threading.Thread(target=self._produce, name="chaos-traffic", daemon=True),
            threading.Thread(target=self._transact, name="chaos-transactions", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Send what is begun, then end."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout_s)

    def marks(self) -> dict[int, int]:
        """By partition the last offset that was acknowledged so far."""
        return dict(self._acked)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 1_000_000,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        due = time.monotonic()
        for batch in self._shape.ticks():
            if self._stop.is_set():
                break
            for sent in batch:
                self._send(producer, sent)
            self._recent.extend(batch[-10:])
            due += len(batch) / self._rate
            producer.poll(max(0.0, min(due - time.monotonic(), 1.0)))
            while (left := due - time.monotonic()) > 0 and not self._stop.is_set():
                producer.poll(left)
        self.failed += producer.flush(60.0)

    def _send(self, producer: Producer, sent: Sent) -> None:
        while True:
            try:
                producer.produce(
                    self._topic,
                    sent.value,
                    sent.key,
                    sent.partition,
                    timestamp=sent.timestamp,
                    on_delivery=self._delivered,
                )
            except BufferError:
                producer.poll(0.2)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        self.acknowledged += 1
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self._acked[partition] = max(self._acked[partition], offset)

    def _transact(self) -> None:
        """A few of the last records once more, in a transaction, every two seconds; two of five are aborted."""
        producer: Producer | None = None
        draw = np.random.default_rng((self._shape.seed, 1 << 40))
        while not self._stop.wait(2.0):
            try:
                producer = producer or self._transactional()
                producer.begin_transaction()
                for sent in list(self._recent)[:6]:
                    producer.produce(self._topic, sent.value, sent.key, sent.partition, timestamp=sent.timestamp)
                producer.flush(5.0)
                if draw.random() < 0.4:
                    producer.abort_transaction(5.0)
                else:
                    producer.commit_transaction(5.0)
                self.transactions += 1
            except KafkaException:
                producer = None  # the next one with the same id ends what this left open

    def _transactional(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self._topic}.harness",
                "transaction.timeout.ms": 8000,
                "message.timeout.ms": 6000,
                "log_level": 0,
            }
        )
        producer.init_transactions(5.0)
        return producer
