"""The factory: paths in, the adapters of the port out."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from kstream_worker.bus.files.cluster import FileCluster
from kstream_worker.bus.files.group import FileGroup
from kstream_worker.bus.files.inputs import Input, expand_inputs
from kstream_worker.bus.files.outputs import OutputFiles, Outputs, StandardOutput
from kstream_worker.bus.files.reader import FileReader
from kstream_worker.bus.files.readers import Format, ReadOptions
from kstream_worker.bus.files.source import FileSource
from kstream_worker.bus.files.store import Store
from kstream_worker.bus.files.writer import FileWriter
from kstream_worker.errors import ConfigError
from kstream_worker.ports import Bus

DEFAULT_MAX_RECORD_BYTES = 1 << 20


def files_bus(
    inputs: Sequence[str | Path] | str,
    output_dir: str | Path | None = None,
    *,
    format: Format = "jsonl",
    key_column: str | None = None,
    topic: str = "input",
    state_topic: str = "state",
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
) -> Bus:
    """Make a bus of files.

    Args:
        inputs: files, folders (all their files of the format) or patterns; `-` for standard input. Each file is one
            partition, in sorted order; a file keeps its number when others are added later.
        output_dir: folder for `<topic>.jsonl` files, the database and the lock; None or `-` for standard output.
        format: `jsonl` (a record is a line) or `csv` (a record is a row, as a JSON object).
        key_column: CSV column whose text is the record key; None for null keys.
        topic: name of the input topic.
        state_topic: what is written to it is kept in the database, by key, and can be read back.
        max_record_bytes: longer lines are cut to one byte more, with length and SHA-256 of the whole in headers, so
            that a gate of the same limit refuses them.

    Raises:
        ConfigError: an input does not exist, or the options contradict one another.
    """
    if format not in ("jsonl", "csv"):
        raise ConfigError(f"input format '{format}' is unknown: use jsonl or csv")
    if key_column is not None and format != "csv":
        raise ConfigError("key_column is for CSV; bind the key of JSON Lines by path")
    found = expand_inputs(inputs, format)
    folder = None if output_dir is None or str(output_dir) == "-" else Path(output_dir).resolve()
    store = Store(folder, found)
    outputs: Outputs = StandardOutput() if folder is None else OutputFiles(store, folder)
    options = ReadOptions(format, key_column, max_record_bytes)
    return Bus(
        source=lambda: FileSource(store, topic, options),
        writer=lambda: FileWriter(store, outputs, state_topic),
        cluster=lambda: FileCluster(store, state_topic),
        reader=lambda: FileReader(store, topic, state_topic, options),
        group=lambda: FileGroup(store),
        notes=tuple(_notes(found, folder)),
    )


def _notes(inputs: Sequence[Input], folder: Path | None) -> list[str]:
    kept = (
        ""
        if folder is None
        else "; models then lack what came after their last snapshot, and the next start needs "
        "`state.on_offset_mismatch` trust_state to go on with them"
    )
    notes = [
        f"{one.name} cannot be replayed: what was read of it and not committed is lost if this process dies{kept}"
        for one in inputs
        if one.is_stream
    ]
    if folder is None:
        target = "a file" if _is_file(sys.stdout.fileno()) else "a pipe or terminal"
        notes.append(
            f"standard output ({target}) is at-least-once: no position is kept, a restart reads all inputs from their "
            "beginning; use an output folder for exactly-once"
        )
    return notes


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
