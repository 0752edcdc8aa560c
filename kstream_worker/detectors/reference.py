"""A bank of change detectors against a frozen reference: drift from commissioning.

Each sample is ranked in the reference of its key, which no later sample ever joins, by fixed scores (coordinates,
radius, products of two coordinates) and by a learned likelihood ratio (paper 004). A drift as slow as may be is so
found in the end. The price: given the reference, ranks are not exactly uniform, so every bet allows for a tolerance
(`reference_bets`), and the guarantee holds for most references instead of all. docs/detection.md has the argument.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors import report
from kstream_worker.detectors.ranks_kernel import CROSSED, RECOVERED
from kstream_worker.detectors.ranks_layout import ALARM, ARMED, BACK, COUNT, LEAD, PHASE, RAISED, SEQ, STEPS_SEQ, Layout
from kstream_worker.detectors.ranks_rows import make_scratch, sample_weights
from kstream_worker.detectors.reference_arming import freeze
from kstream_worker.detectors.reference_bets import is_playable, tolerance
from kstream_worker.detectors.reference_kernel import walk
from kstream_worker.detectors.reference_layout import (
    FROM_FILE,
    FROM_SHARED,
    GOAL,
    LEAST,
    ORIGIN,
    make_layout,
)
from kstream_worker.detectors.reference_report import guarantee_of, lead_of, read_crossing
from kstream_worker.detectors.streams import StreamBank, Walk
from kstream_worker.detectors.thresholds import WEEK_MS, escalator
from kstream_worker.records import FloatMatrix, Transition

KIND = "reference"
ROW = 5  # of what the numbers of a row mean: snapshots of other rows are refused
MIN_SAMPLES, MAX_SAMPLES = 20, 2000
_FIRST_TIME, _LAST_TIME = np.iinfo(np.int64).min, np.iinfo(np.int64).max

References = Mapping[bytes | None, FloatMatrix]


class ReferenceBank(StreamBank):
    """Change detectors of many keys that see one stream each; implements `ports.Bank`, one-sided.

    The reference of a key is, in this order of preference: its samples in `references`, those under None in
    `references`, or the first `samples` ones of its stream from event time `start_ms` on. A reference from the stream
    that holds at least 200 samples is closed early once the key's clock has passed `end_ms`. It is then frozen and the
    key armed; neither changes until the key is dropped. After an alarm the key raises no other until `dead_time_ms` of
    event time have passed; then the alarm is cleared, the evidence is 0, and the key is armed again. Each alarm
    multiplies the key's threshold by `escalation`; the factor falls back to 1 within `escalation_decay_ms`
    (`thresholds`).

    Args:
        dims: features of a sample.
        samples: of the reference, at most; 20 to 2000.
        delta: share of references for which the stated rate may fail; above 0, below .5. The smaller, the larger the
            differences that are ignored.
        references: float64[n, dims] by key, finite; None is the key of the one that keys without their own share.
            Those longer than `samples` are cut behind the first ones.
        start_ms: event time from which samples join the reference, milliseconds; None: any.
        end_ms: event time up to which they should; None: any.
        test: whether references are tested for serial dependence (Ljung-Box); where it is found, no rate is stated.
        feature_names: their names in reports; `f0`, `f1`, ... by default.
        arl: samples of one key between false alarms in the mean, at least, for about 1 - delta of references; above 1,
            up to 1e20. The threshold of the evidence is twice that, without escalation.
        dead_time_ms: event time after an alarm in which the key raises no other, milliseconds.
        escalation: factor on the key's threshold for each alarm; 1: none.
        escalation_decay_ms: event time after an alarm in which that factor falls to 1, linearly on a logarithmic scale.
        seed: of random draws.
        capacity: slots at the start; the bank grows.

    Raises:
        ValueError: an argument is out of its range; says which.
    """

    against = "reference"

    def __init__(
        self,
        dims: int,
        *,
        samples: int = 500,
        delta: float = 0.05,
        references: References | None = None,
        start_ms: int | None = None,
        end_ms: int | None = None,
        test: bool = True,
        feature_names: Sequence[str] | None = None,
        arl: float = 1_000_000.0,
        dead_time_ms: int = 0,
        escalation: float = 1.0,
        escalation_decay_ms: int = WEEK_MS,
        seed: int = 0,
        capacity: int = 64,
    ) -> None:
        layout = _check(dims, samples, delta, dead_time_ms)
        rules = escalator(escalation, escalation_decay_ms)
        self.feature_names = report.feature_names(feature_names, dims)
        self._delta = delta
        self._z = tolerance(delta, layout.fixed)
        self._references = _checked(references or {}, dims, samples, self._z)
        self._ranged = start_ms is not None or end_ms is not None
        if not is_playable(self._z, samples - samples // 2):
            raise ValueError(f"samples is {samples}, too few for delta {delta:g}: take more of them or a larger delta")
        self._test = test
        self._plan = layout.table()
        settings = {
            "row": ROW,
            "dims": dims,
            "samples": samples,
            "delta": delta,
            "references": digest_of(self._references),
            "span": [start_ms, end_ms],
            "test": test,
        }
        given = self._plan, sample_weights(layout), _span(start_ms, end_ms, self._z), self._z
        compiled = Walk(walk, given, make_scratch(layout))
        super().__init__(KIND, settings, seed, capacity, layout, compiled, arl, rules, dead_time_ms)

    def allocate(self, key: bytes) -> int:
        """A fresh slot for this key, with its reference in it where one was given."""
        slot = super().allocate(key)
        state = self._slots.ints[slot]
        own = self._references.get(key)
        reference = self._references.get(None) if own is None else own
        if reference is None:
            state[GOAL] = self._layout.warmup
            return slot
        state[GOAL] = state[COUNT] = len(reference)
        state[ORIGIN] = FROM_SHARED if own is None else FROM_FILE
        self._put(slot, reference.ravel())
        return slot

    def _take(self, event: int, row: int, slot: int, evidence: float) -> tuple[int, list[Transition]]:
        if event == CROSSED:
            return row + 1, self._cross(row, slot, evidence)
        if event == RECOVERED:
            self._slots.ints[slot, ALARM] = 0
            return row + 1, [self._cleared(row, slot, "recovered")]
        self._freeze(slot)
        return row, []

    def _put(self, slot: int, samples: NDArray[np.float64]) -> None:
        """Put the samples of a reference where the walk would have collected them."""
        row = self._slots.floats[slot, self._layout.union :]
        row[: len(samples)] = samples[: len(row)]
        rest = samples[len(row) :]
        self._slots.shorts[slot].view(np.float64)[: len(rest)] = rest

    def _freeze(self, slot: int) -> None:
        """Arm a key whose reference is complete."""
        state = self._slots.ints[slot]
        freeze(self._slots.floats[slot], self._slots.shorts[slot], state, self._test, self._plan)
        state[COUNT] = 0
        state[STEPS_SEQ] = state[SEQ]
        state[PHASE] = ARMED

    def _cross(self, row: int, slot: int, evidence: float) -> list[Transition]:
        floats, state = self._slots.floats[slot], self._slots.ints[slot]
        crossing = read_crossing(floats, self._slots.shorts[slot], state, self._layout, self.feature_names)
        told = self._superseded(row, slot, crossing)
        told.append(self._raised(row, slot, evidence, crossing))
        state[LEAD] = lead_of(floats, state, self._layout)
        floats[BACK] = 0.0
        self._put_up(slot)
        state[PHASE] = RAISED
        floats[self._layout.R : self._layout.run_time + self._layout.locators] = 0.0
        return told

    def _guarantee(self, slot: int) -> report.Guarantee:
        elsewhere = "file" if self._references else "range" if self._ranged else ""
        return guarantee_of(self._slots.ints[slot], self._standing(slot).arl, self._delta, self._z, elsewhere)


def digest_of(references: References) -> str:
    """A short name of all references: equal exactly when keys and samples are equal; empty without any."""
    if not references:
        return ""
    digest = hashlib.blake2b(digest_size=12)
    for key in sorted(references, key=lambda key: (key is not None, key or b"")):
        samples = references[key].astype("<f8")
        digest.update(b"-" if key is None else b"%d:%s" % (len(key), key))
        digest.update(b"%d\n" % len(samples))
        digest.update(samples.tobytes())
    return digest.hexdigest()


def _check(dims: int, samples: int, delta: float, dead_time_ms: int) -> Layout:
    if dims < 1:
        raise ValueError(f"dims is {dims}; a sample needs at least one feature")
    if not MIN_SAMPLES <= samples <= MAX_SAMPLES:
        raise ValueError(f"samples is {samples}; it must lie in {MIN_SAMPLES}..{MAX_SAMPLES}")
    if not 0.0 < delta < 0.5:
        raise ValueError(f"delta is {delta}; it must lie between 0 and .5")
    if dead_time_ms < 0:
        raise ValueError(f"dead_time_ms is {dead_time_ms}; it must not be negative")
    return make_layout(dims, samples)


def _span(start_ms: int | None, end_ms: int | None, z: float) -> NDArray[np.int64]:
    """Times between which samples join a reference, and how many are enough for one that is closed at the end."""
    start, end = _FIRST_TIME if start_ms is None else start_ms, _LAST_TIME if end_ms is None else end_ms
    if start >= end:
        raise ValueError(f"start_ms is {start_ms}, end_ms {end_ms}; the start must lie before the end")
    enough = next(n for n in range(LEAST, MAX_SAMPLES + 1) if n == MAX_SAMPLES or is_playable(z, n - n // 2))
    return np.array([start, end, enough], dtype=np.int64)


def _checked(references: References, dims: int, samples: int, z: float) -> dict[bytes | None, FloatMatrix]:
    """The references, contiguous, each cut to `samples`."""
    found: dict[bytes | None, FloatMatrix] = {}
    for key, given in references.items():
        name = "without a key" if key is None else f"of key {key.decode(errors='replace')!r}"
        matrix = np.ascontiguousarray(given[:samples], dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != dims:
            raise ValueError(f"the reference {name} has the shape {matrix.shape}, not (n, {dims})")
        if not np.isfinite(matrix).all():
            raise ValueError(f"the reference {name} holds a number that is not finite")
        n = len(matrix)
        if n < MIN_SAMPLES or not is_playable(z, n - n // 2):
            raise ValueError(f"the reference {name} has {n} samples, too few: give more, or leave the key out")
        found[key] = matrix
    return found
