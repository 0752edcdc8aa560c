"""What can be asked about files: how many, how long, and whether they may be read and written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kstream_worker.bus.files.inputs import Input
from kstream_worker.bus.files.store import Store
from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.records import End, TopicPartition, Unowned


class FileCluster:
    """The `Cluster` of files. Output topics have as many partitions as there are inputs, all in one file."""

    def __init__(self, store: Store, state_topic: str) -> None:
        self._store = store
        self._state_topic = state_topic

    def cluster_id(self) -> str:
        """Identity of the database in the output folder: inputs may come and go."""
        return f"files-{self._store.identity()}"

    def partition_count(self, topic: str) -> int | None:
        """One more than the highest number of an input, for any topic: outputs come into being by writing."""
        del topic
        return max(self._store.numbering()) + 1

    def topic_id(self, topic: str) -> str:
        """Unknown: a file that was replaced is found at the start by what is read of it."""
        del topic
        return ""

    def topic_config(self, topic: str) -> dict[str, str]:
        """Files have no settings; the state keeps the latest record of each key."""
        return {"cleanup.policy": "compact"} if topic == self._state_topic else {}

    def earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """0 for files and state; for a stream the number at which its bytes go on."""
        return {one: 0 if one.topic == self._state_topic else self._input(one).base for one in partitions}

    def end(self, partitions: Sequence[TopicPartition], end: End) -> dict[TopicPartition, int]:
        """Sizes of files; a stream has no end yet, and answers where it begins. Of state what was written last."""
        del end  # nothing in a file is open
        return {
            one: self._store.state_end() if one.topic == self._state_topic else self._end(self._input(one))
            for one in partitions
        }

    def at_time(self, partitions: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """Not to be had.

        Raises:
            ConfigError: always, lines have no record time.
        """
        del partitions
        raise ConfigError(f"files cannot be read from a time ({time_ms} ms): start from earliest")

    def unowned(self, topic: str) -> Unowned:
        """There is one process, and it has all."""
        del topic
        return Unowned(())

    def check_rights(self, *, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
        """Inputs that cannot be read, and what speaks against writing to the output folder."""
        del inputs  # there is one input topic
        unreadable = (_read_problem(one) for one in self._store.numbering().values())
        problems = [problem for problem in unreadable if problem]
        folder = self._store.folder
        if folder is not None and (problem := _write_problem(folder, outputs)):
            problems.append(problem)
        return problems

    def create_topics(self, partitions: Mapping[str, int], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Nothing to create: an output file is made by the first commit that writes to it."""
        del partitions, configs
        return []

    def close(self) -> None:
        """Nothing to stop."""

    def _input(self, partition: TopicPartition) -> Input:
        found = self._store.numbering().get(partition.partition)
        if found is None:
            raise Fatal(f"{partition} has no input file")
        return found

    def _end(self, source: Input) -> int:
        if source.is_stream:
            return source.base
        try:
            return source.size()
        except OSError as error:
            raise Fatal(f"{source.name} cannot be read: {error.strerror}") from error


def _read_problem(source: Input) -> str | None:
    if source.is_stream:
        return None
    try:
        with Path(source.path).open("rb") as content:
            content.read(1)
    except OSError as error:
        return f"{source.name} cannot be read: {error.strerror}; correct its path or rights"
    return None


def _write_problem(folder: Path, outputs: Sequence[str]) -> str | None:
    """Make the folder and write a file into it, as a commit would."""
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"0" * 4096)
        probe.unlink()
    except OSError as error:
        return (
            f"output folder '{folder}' cannot be written ({', '.join(outputs)}): {error.strerror}; "
            "choose another, free space or correct its rights"
        )
    return None
