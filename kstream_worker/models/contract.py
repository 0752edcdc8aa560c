"""What a model must be to run on the bus, the built-in ones and those of third parties alike.

A model estimates something of each key's samples, and may watch scores of its own: numbers that rise or fall when the
model no longer fits. The worker ranks these scores against their own past and raises alarms on them; a model
need not know how. All state of a key lies in its slot, so that a snapshot of the slot is the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from kstream_worker.records import FloatMatrix, IntColumn

Features = tuple[tuple[str, float], ...]


class Column(NamedTuple):
    """One number of an estimate.

    Attributes:
        name: in the estimate's `values`, parts separated by dots: `mean.temp`.
        texts: where the number is an index into these, the text is published in its place.
    """

    name: str
    texts: tuple[str, ...] = ()


@dataclass(slots=True)
class Estimates:
    """What a model answers for n samples, all made *before* the sample updates the model.

    Attributes:
        values: float64[n, m], one column for each of `Model.columns`; NaN where not known, infinite for a limit
            that there is none of: both are published as null.
        scores: float64[n, w], one column for each of `Model.watched`; a row is all finite, or all NaN where the model
            has no judgement of that sample (it warms up, or lacks a predecessor).
    """

    values: FloatMatrix
    scores: FloatMatrix


class Model(Protocol):
    """Models of many keys, one slot each. Deterministic: a key's results depend on the key's own samples only.

    Contract, tested by one suite: any cut of a stream into batches gives equal bits; other keys change nothing; a
    restored snapshot continues with equal bits; what does not update changes nothing; non-finite input raises
    ValueError and changes nothing (but NaN, where the kind takes missing values); memory per key is bounded by
    `bytes_per_key`.
    """

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is published of each sample; constant."""
        ...

    @property
    def watched(self) -> tuple[str, ...]:
        """Names of the scores that raise alarms, at most 8; empty for a model that raises none."""
        ...

    @property
    def bytes_per_key(self) -> int:
        """Bytes that one slot takes, constant."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, free slots included."""
        ...

    @property
    def fingerprint(self) -> str:
        """Kind and all settings that shape state: snapshots go only between models of equal fingerprints."""
        ...

    def allocate(self, key: bytes) -> int:
        """A fresh slot for this key; its random draws are functions of (seed, key, counter)."""
        ...

    def free(self, slot: int) -> None:
        """Give the slot back."""
        ...

    def update(self, slots: IntColumn, x: FloatMatrix | None, y: FloatMatrix, times: IntColumn) -> Estimates:
        """Walk n samples in order: answer for each with its key's model, then let it update that model.

        Args:
            slots: int64[n].
            x: float64[n, dx], the input side; None for a kind that takes single samples.
            y: float64[n, dy], the output side, or the single sample.
            times: int64[n], event times of y in milliseconds.

        Raises:
            ValueError: shapes do not fit, or a value is not finite; nothing has changed then.
        """
        ...

    def drivers(self, slot: int) -> Features:
        """(name, weight) of what the latest samples of this key misfit in, largest first, at most 8, weights sum to 1.

        Put into an alarm in the place of the scores' names; empty where the model cannot say. Changes nothing.
        """
        ...

    def snapshot(self, slot: int) -> bytes:
        """All of the slot's state, self-describing, without pickle."""
        ...

    def restore(self, slot: int, snapshot: bytes) -> None:
        """Put a snapshot of a model of the same fingerprint into an allocated slot.

        Raises:
            ValueError: another format, another configuration, or damaged.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model is to be built for.

    Attributes:
        x_names: names of the input side's dx features; empty for single samples.
        y_names: names of the dy features of the output side, or of the single sample.
        seed: of all random draws.
    """

    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    seed: int


class ModelKind(Protocol):
    """How models of one kind are built; third parties register one in the entry-point group `kstream_worker.models`.

    Attributes:
        sides: `pair` for (input, output), `single` for one sample a record.
        same_space: whether both sides of a pair must bind the same number of values.
        missing: whether a sample may lack values (null in the record, NaN in y).
    """

    sides: Literal["pair", "single"]
    same_space: bool
    missing: bool

    def build(self, shape: Shape, options: Mapping[str, object]) -> Model:
        """An empty model.

        Args:
            shape: of its samples.
            options: settings of this kind, as configured.

        Raises:
            ValueError: an option is unknown or out of range; says which.
        """
        ...
