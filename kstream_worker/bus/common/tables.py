"""What both clients ask of the three tables of client settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

PATH = "bus.kafka"

Settings = Mapping[str, Any]
N = TypeVar("N")


def unfit(
    servers: Sequence[str],
    tables: Iterable[tuple[str, Settings, N]],
    problem: Callable[[str, object, N], str],
) -> Iterator[str]:
    """Problems of single settings.

    Args:
        servers: `bootstrap_servers`.
        tables: name of a table, what it gives, and what `problem` must know of it.
        problem: what is wrong with a name and its value; empty for nothing.
    """
    if not servers:
        yield f"`{PATH}.bootstrap_servers` is missing: name the brokers"
    for table, given, about in tables:
        for name, value in given.items():
            found = problem(name, value, about)
            if found:
                yield f"`{PATH}.{table}.{name}`: {found}"


def contradictions(
    consumer: Settings, producer: Settings, chains: Iterable[tuple[str, str]], session: tuple[str, str]
) -> Iterator[str]:
    """Settings that do not go together.

    Args:
        consumer: as the consumer gets them.
        producer: as the producer gets them.
        chains: of the producer, (shorter, longer).
        session: of the consumer: the session's time-out, and the poll interval.
    """
    for shorter, longer in chains:
        if int(producer[shorter]) >= int(producer[longer]):
            yield (
                f"`{PATH}.producer`: {shorter} ({producer[shorter]}) must be shorter than {longer} "
                f"({producer[longer]}): a transaction must outlive the attempts to deliver its records"
            )
    timeout, interval = session
    if int(consumer[timeout]) > int(consumer[interval]):
        yield f"`{PATH}.consumer`: {timeout} must not be longer than {interval}"
