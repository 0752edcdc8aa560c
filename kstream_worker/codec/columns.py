"""Record by record through a typed decoder into columns; a refused record takes the slow path alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from kstream_worker.codec.binding import Binding
from kstream_worker.codec.diagnose import DecodedRow, Diagnosis
from kstream_worker.codec.schema import RowSchema
from kstream_worker.errors import RejectRecord
from kstream_worker.records import Fields, FloatMatrix, Rejects

# Deeper nesting is refused by count, for the interpreter's own limit depends on its version and on who calls.
MAX_DEPTH = 256


class Format(Protocol):
    """What one payload format does with single values."""

    def is_plain(self, values: Sequence[bytes]) -> bool:
        """Whether no value needs `screen`, found out for all of them at once."""
        ...

    def screen(self, value: bytes) -> None:
        """Refuse what the typed decoder would let through or choke on.

        Raises:
            RejectRecord: `not_decodable`.
        """
        ...

    def row(self, value: bytes) -> Any:
        """The typed row of a value.

        Raises:
            msgspec.MsgspecError: not of this format, or a bound field is missing or of another type.
            RecursionError: nested too deeply.
        """
        ...

    def members(self, value: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
        """The members of an object, still encoded.

        Raises:
            msgspec.MsgspecError: not of this format, or no object.
        """
        ...

    def value(self, member: msgspec.Raw) -> Any:
        """A member, decoded without a type.

        Raises:
            msgspec.MsgspecError: not of this format.
        """
        ...


class ColumnDecoder:
    """Values of one format in, columns of bound fields out. Pure.

    Args:
        binding: the bound fields.
        schema: their struct type and column getters.
        payload_format: the format of all values.
    """

    def __init__(self, binding: Binding, schema: RowSchema, payload_format: Format) -> None:
        self.binding = binding
        self._schema = schema
        self._format = payload_format
        self._labels = (() if binding.x is None else binding.x.labels, binding.y.labels)
        self._diagnosis = Diagnosis(binding, payload_format.members, payload_format.value)

    def decode(self, values: Sequence[bytes | None], positions: Sequence[int], rejects: Rejects) -> Fields:
        """Decode the values (none of them null) at these positions.

        What is refused is added to `rejects`, as `not_decodable`, `field_missing`, `not_a_number`, `wrong_length`,
        `out_of_range` or `bad_key`.
        """
        rows: list[Any] = []
        others: set[int] = set()  # positions without a row
        slow: dict[int, DecodedRow] = {}
        chosen = [value for value in map(values.__getitem__, positions) if value is not None]
        screen = None if self._format.is_plain(chosen) else self._format.screen
        decode = self._format.row
        for position, value in zip(positions, chosen, strict=True):
            try:
                if screen is not None:
                    screen(value)
                rows.append(decode(value))
            except (msgspec.MsgspecError, RecursionError):
                others.add(position)
                self._decode_slowly(value, position, slow, rejects)
            except RejectRecord as error:
                others.add(position)
                rejects.add(position, error.reason, str(error))
        fields = self._columns(rows, [p for p in positions if p not in others] if others else list(positions))
        return _merge(fields, slow) if slow else fields

    def _decode_slowly(self, value: bytes, position: int, slow: dict[int, DecodedRow], rejects: Rejects) -> None:
        try:
            slow[position] = self._diagnosis.decode(value)
        except RejectRecord as error:
            rejects.add(position, error.reason, str(error))

    def _columns(self, rows: list[Any], kept: list[int]) -> Fields:
        schema = self._schema
        return Fields(
            positions=kept,
            x=None if schema.x is None else schema.x(rows),
            y=schema.y(rows),
            times=None if schema.time is None else list(map(schema.time, rows)),
            keys=None if schema.key is None else list(map(schema.key, rows)),
            labels=self._labels,
        )


def _merge(fields: Fields, slow: dict[int, DecodedRow]) -> Fields:
    """Put the rows that the slow path accepted back into their places."""
    positions = fields.positions + list(slow)
    order = np.argsort(np.array(positions), kind="stable")
    late = list(slow.values())
    return Fields(
        positions=sorted(positions),
        x=None if fields.x is None else _stack(fields.x, [row.x or [] for row in late], order),
        y=_stack(fields.y, [row.y for row in late], order),
        times=None if fields.times is None else _reorder(fields.times + [row.time for row in late], order),
        keys=None if fields.keys is None else _reorder(fields.keys + [row.key for row in late], order),
        labels=fields.labels,
    )


def _stack(matrix: FloatMatrix, rows: list[list[float]], order: np.ndarray[Any, Any]) -> FloatMatrix:
    return np.ascontiguousarray(np.concatenate([matrix, np.array(rows, dtype=np.float64)])[order])


def _reorder(items: list[Any], order: np.ndarray[Any, Any]) -> list[Any]:
    return [items[i] for i in order]
