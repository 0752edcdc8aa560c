"""The reference file: samples of each key as they were at its commissioning, read once at start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from kstream_worker.bus.files.inputs import Input
from kstream_worker.bus.files.readers import ReadOptions, RecordReader, Records
from kstream_worker.codec import DECODERS, Binding
from kstream_worker.detectors.reference import References
from kstream_worker.detectors.reference_layout import LEAST
from kstream_worker.errors import ConfigError
from kstream_worker.gate import MAX_MAGNITUDE
from kstream_worker.records import Fields, FloatMatrix, Rejects

LINES_AT_ONCE = 4000
KEY = ("key",)  # where a line has its key when the configuration binds none


@cache
def read_references(path: str, binding: Binding, samples: int, max_record_bytes: int) -> References:
    """The samples of a reference file by key, in the order of its lines; under None those of lines without a key.

    A process reads a file once: whatever it says later belongs to another configuration.

    Args:
        path: of a file of JSON Lines, or of CSV where it ends in `.csv`.
        binding: the bound fields of the input; the live side and the key are read, or `key` where none is bound.
        samples: of each key so many first ones are kept.
        max_record_bytes: longest line.

    Returns:
        float64[n, d] by key, 200 <= n <= samples.

    Raises:
        ConfigError: the file cannot be read, holds nothing or too little of a key, or a line is refused; says which.
    """
    lines = Path(path)
    if not lines.is_file():
        raise ConfigError(f"`reference.file`: there is no file {path}: correct the path, or create it")
    options = ReadOptions("csv" if lines.suffix.lower() == ".csv" else "jsonl", None, max_record_bytes)
    bound = replace(binding, x=None, timestamp=None, key=binding.key or KEY)
    decoder = DECODERS["json"](bound)
    found: defaultdict[bytes | None, list[FloatMatrix]] = defaultdict(list)
    for records in _records(str(lines.resolve()), options):
        rejects = Rejects()
        fields = decoder.decode(records.values, range(len(records.values)), rejects)
        _refuse(path, records, fields, rejects)
        for key, sample in zip(fields.keys or [], fields.y, strict=True):
            kept = found[None if key is None else str(key).encode()]
            if len(kept) < samples:
                kept.append(sample)
    if not found:
        raise ConfigError(f"`reference.file`: {path} holds no samples")
    short = [f"{_name(key)} ({len(kept)})" for key, kept in found.items() if len(kept) < LEAST]
    if short:
        raise ConfigError(
            f"`reference.file`: {path} has fewer than {LEAST} samples of {', '.join(short[:3])}"
            + (f" and {len(short) - 3} more" if len(short) > 3 else "")
            + ": give more, or leave these keys out"
        )
    return {key: np.array(kept) for key, kept in found.items()}


def _name(key: bytes | None) -> str:
    return "lines without a key" if key is None else f"key {key.decode()!r}"


def _records(path: str, options: ReadOptions) -> Iterator[Records]:
    source = Input(path)
    source.open()
    try:
        reader = RecordReader(source, 0, options)
        while not reader.finished:
            if (records := reader.take(LINES_AT_ONCE)).values:
                yield records
    finally:
        source.close()


def _refuse(path: str, records: Records, fields: Fields, rejects: Rejects) -> None:
    """Nothing of a reference is left out silently: the first line that would be refused ends the start."""
    problems = dict(zip(rejects.positions, rejects.messages, strict=True))
    usable = (np.abs(fields.y) <= MAX_MAGNITUDE).all(axis=1)  # False for NaN
    problems |= {fields.positions[row]: "a number is not finite, or too large" for row in np.flatnonzero(~usable)}
    for position, headers in enumerate(records.headers):
        if headers:
            problems[position] = "the line is too long, or no row of the table"
    if problems:
        first = min(problems)
        raise ConfigError(
            f"`reference.file`: {path}, the line that starts at byte {records.offsets[first]}: {problems[first]}"
        )
