"""Models of any kind on the bus: their estimates are published, their scores are ranked, and alarms raised on them.

The scores that a model watches (an innovation, a misfit) are a stream like any other: the rank detector bets that the
newest ones are higher than the key's former ones. Upwards alone: a model that goes on learning fits better and better,
and nobody is to be called for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kstream_worker.detectors.ranks import RankBank
from kstream_worker.detectors.report import Guarantee
from kstream_worker.detectors.tally import Tally
from kstream_worker.models.bank import SlotMap, fingerprint_of, seal, unseal
from kstream_worker.models.contract import Column, Features, Model, Shape
from kstream_worker.records import FloatMatrix, IntColumn, Scores, Transition

MAX_WATCHED = 8
KIND = "modelled"
_WARMING, _ARMED = 0, 1


class ModelBank:
    """The models of many keys with their detectors; implements `ports.Bank`.

    A sample's `state` is that of the detector: warming until so many samples had scores that it is armed. Where a model
    watches nothing, it is warming until there is a first estimate. Numbers and times of samples, in alarms too, are
    those of all samples of the key, with and without scores.

    Args:
        model: empty.
        watch: detector of the model's scores, whose features are `model.watched`; a `Tally` where there are none.
        shape: of the samples; without `x_names` the model takes single ones.
        missing: whether y may hold NaN.

    Raises:
        ValueError: detector and model do not fit, or the model's columns are unusable.
    """

    def __init__(self, model: Model, watch: RankBank | Tally, shape: Shape, *, missing: bool = False) -> None:
        _check(model, watch)
        self._model = model
        self._watch = watch
        self._x_dims, self._y_dims = len(shape.x_names), len(shape.y_names)
        self._missing = missing
        self._inner = SlotMap()
        parts = {"model": model.fingerprint, "watch": watch.fingerprint, "dims": [self._x_dims, self._y_dims]}
        self._fingerprint = fingerprint_of(parts)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names of the columns of `Scores.estimates`."""
        return self._model.columns

    @property
    def bytes_per_key(self) -> int:
        """Bytes that one slot takes, constant."""
        return self._model.bytes_per_key + self._watch.bytes_per_key

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, free slots included."""
        return self._model.nbytes + self._watch.nbytes

    @property
    def fingerprint(self) -> str:
        """Kind and configuration of model and detector."""
        return f"{KIND}:{self._fingerprint}"

    def retune(self, arl: float) -> None:
        """Go on with another average run length; see `ports.Bank.retune`."""
        self._watch.retune(arl)

    def allocate(self, key: bytes) -> int:
        """A fresh slot for this key."""
        slot = self._watch.allocate(key)
        self._inner.put(slot, self._model.allocate(key))
        return slot

    def free(self, slot: int) -> None:
        """Give the slot back.

        Raises:
            ValueError: the slot is not allocated.
        """
        self._watch.free(slot)
        self._model.free(self._inner.one(slot))

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Scores:
        """Let the models answer and learn, and the detectors judge; see `ports.Bank.update`.

        Args:
            slots: int64[n].
            x: float64[n, dx], the input side; None for single samples.
            y: float64[n, dy], the output side, or the samples.
            times: int64[n], event times in milliseconds.

        Raises:
            ValueError: a shape does not fit, a slot is not allocated, or a value is not finite; nothing has changed.
        """
        slots, x, y, times = self._check_samples(slots, x, y, times)
        n = len(slots)
        answers = Scores(
            np.zeros(n, dtype=np.int8),
            np.zeros(n, dtype=np.int64),
            np.full(n, np.nan),
            np.full(n, np.nan),
            np.zeros(n),
            np.full(n, np.nan),
            [],
            estimates=np.full((n, len(self.columns)), np.nan),
        )
        batch = _Batch(slots, x, y, times)
        taken = list(turns(slots))
        # An alarm tells the drivers as of its own sample, but a model knows only those of its latest. So either no key
        # has a later sample in what is done at once, or there is a way back; the cheaper one, and the same to the bit.
        several = slots[taken[1]] if len(taken) > 1 and not isinstance(self._watch, Tally) else slots[:0]
        if len(taken) > len(several):
            before = {slot: self._model.snapshot(self._inner.one(slot)) for slot in several.tolist()}
            self._take(np.arange(n), batch, answers, before)
        else:
            for rows in taken:
                self._take(rows, batch, answers, {})
            answers.transitions.sort(key=lambda transition: transition.row)
        return answers

    def forget(self, slot: int) -> Transition | None:
        """The `cleared` transition owed when this key is dropped now; changes nothing."""
        owed = self._watch.forget(slot)
        return None if owed is None else _told(owed, -1)

    def raised(self, slot: int) -> bool:
        """Whether the key's alarm is up."""
        return self._watch.raised(slot)

    def guarantee(self, slot: int) -> Guarantee | None:
        """What may be said of alarms on the scores of an armed key; None where no scores are watched."""
        if isinstance(self._watch, Tally):
            return None
        return _of_scores(self._watch.guarantee(slot), self._watch.arl(slot))

    def seq(self, slot: int) -> int:
        """Samples of the key so far, with and without scores."""
        return self._watch.seq(slot)

    def snapshot(self, slot: int) -> bytes:
        """State of model and detector.

        Raises:
            ValueError: the slot is not allocated.
        """
        watch = self._watch.snapshot(slot)
        return seal(KIND, self._fingerprint, watch=watch, model=self._model.snapshot(self._inner.one(slot)))

    def restore(self, slot: int, snapshot: bytes) -> None:
        """Put a snapshot of a bank of the same settings into an allocated slot.

        Raises:
            ValueError: damaged, of another format or of other settings; nothing has changed.
        """
        before = self._watch.snapshot(slot)
        parts = unseal(KIND, self._fingerprint, snapshot)
        self._watch.restore(slot, parts.get("watch", b""))
        try:
            self._model.restore(self._inner.one(slot), parts.get("model", b""))
        except ValueError:
            self._watch.restore(slot, before)
            raise

    def _check_samples(
        self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn
    ) -> tuple[IntColumn, FloatMatrix | None, FloatMatrix, IntColumn]:
        """All of it before any of it is used: a model is not asked to undo."""
        rows = self._watch.slots
        if self._x_dims:
            return rows.check_pairs(slots, x, y, times, self._y_dims, x_dims=self._x_dims, missing=self._missing)
        if x is not None:
            raise ValueError("x must be None: this model takes single samples")
        slots, y, times = rows.check_samples(slots, y, times, self._y_dims, missing=self._missing)
        return slots, None, y, times

    def _take(self, rows: NDArray[np.int64], batch: _Batch, answers: Scores, before: Mapping[int, bytes]) -> None:
        """Rows of a batch; `before` has the models of those keys of which there are several."""
        part = batch.part(rows)
        said = self._model.update(self._inner.all(part.slots), part.x, part.y, part.times)
        found = self._watch.follow(part.slots, said.scores, part.times)
        if isinstance(self._watch, Tally):
            found.state[:] = np.where(np.isfinite(said.values).any(axis=1), _ARMED, _WARMING)
        answers.state[rows] = found.state
        answers.seq[rows] = found.seq
        answers.evidence[rows] = found.evidence
        answers.threshold[rows] = found.threshold
        if answers.estimates is not None:
            answers.estimates[rows] = said.values
        for transition in found.transitions:
            told = _told(transition, int(rows[transition.row]))
            if told.kind == "raised":
                drivers = self._drivers(told.slot, told.row, batch, before)
                told = replace(told, direction="up", features=drivers or told.features)
            answers.transitions.append(told)

    def _drivers(self, slot: int, row: int, batch: _Batch, before: Mapping[int, bytes]) -> Features:
        """As of a row of the batch: of the model as it is, or of one that is brought there again."""
        if slot not in before:
            return self._model.drivers(self._inner.one(slot))
        part = batch.part(np.flatnonzero(batch.slots[: row + 1] == slot))
        again = self._model.allocate(b"")
        try:
            self._model.restore(again, before[slot])
            self._model.update(np.full_like(part.slots, again), part.x, part.y, part.times)
            return self._model.drivers(again)
        finally:
            self._model.free(again)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Checked samples; fields as in `ModelBank.update`."""

    slots: IntColumn
    x: FloatMatrix | None
    y: FloatMatrix
    times: IntColumn

    def part(self, rows: NDArray[np.int64]) -> _Batch:
        """Some of them, in this order."""
        if len(rows) == len(self.slots):
            return self
        return _Batch(self.slots[rows], None if self.x is None else self.x[rows], self.y[rows], self.times[rows])


def _told(transition: Transition, row: int) -> Transition:
    """The detector's transition as one of the model; what it says of the scores is not said of the samples."""
    said = guarantee_of(transition)
    return replace(transition, row=row, guarantee=said.level, guarantee_reason=said.reason, explanation=None)


def guarantee_of(transition: Transition) -> Guarantee:
    """What may be said of an alarm on a model's scores: never more than `approximate`."""
    return _of_scores(Guarantee(transition.guarantee, transition.guarantee_reason), transition.arl)


def _of_scores(said: Guarantee, arl: float) -> Guarantee:
    if said.level == "exact_if_iid":
        return Guarantee(
            "approximate",
            "Ranked are scores of a model that goes on learning: the mean number of samples with scores to a false "
            f"alarm is at least {arl:.12g} only as far as the scores are independent and identically "
            "distributed while nothing changes.",
        )
    return Guarantee(said.level, f"Ranked are scores of a model that goes on learning. {said.reason}")


def turns(slots: IntColumn) -> Iterator[NDArray[np.int64]]:
    """Rows in turns: first the first row of each slot, then the second of each that has one, and so on.

    Args:
        slots: int64[n].

    Yields:
        int64[m], rows, ascending.
    """
    n = len(slots)
    if n == 0:
        return
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    turn = np.empty(n, dtype=np.int64)
    turn[order] = np.arange(n) - np.repeat(first, np.diff(np.append(first, n)))
    rows = np.argsort(turn, kind="stable")
    start = 0
    for size in np.bincount(turn).tolist():
        yield rows[start : start + size]
        start += size


def _check(model: Model, watch: RankBank | Tally) -> None:
    names = [column.name for column in model.columns]
    if len(set(names)) != len(names):
        raise ValueError(f"the model's columns {names} hold a name twice")
    if len(model.watched) > MAX_WATCHED:
        raise ValueError(f"the model watches {len(model.watched)} scores; at most {MAX_WATCHED} can be ranked")
    features = () if isinstance(watch, Tally) else watch.feature_names
    if features != model.watched:
        raise ValueError(f"the detector ranks {features}, but the model watches {model.watched}")
