"""The tree of errors: the class of an error decides what the worker does.

KstreamError
|-- RejectRecord    one record cannot be used: dead letter, go on
|-- Retry           a passing fault of the bus: back off, same outbox, same records
|-- Rebuild         a fault inside one partition's models: drop and start that partition again
|-- Rejoin          this member was put out of its group: drop all tasks, join again
`-- Fatal           no way on: exit 1, the message says what to do
    `-- ConfigError the configuration, a topic or a right is wrong: exit 78
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FATAL = 1
EXIT_USAGE = 2
EXIT_CONFIG = 78


class KstreamError(Exception):
    """Root of all errors that this package raises on purpose."""


class RejectRecord(KstreamError):
    """One record cannot be used; `reason` is a short, fixed word (a metric label), the message is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Retry(KstreamError):
    """A passing fault of the bus. Nothing is lost; the same call may be made again after a pause."""


class Rebuild(KstreamError):
    """An exception inside a model of one partition: that partition is dropped and started again."""


class Rejoin(KstreamError):
    """The group membership is gone; all tasks are dropped and the group is joined again."""


class Fatal(KstreamError):
    """The process cannot go on. The message says what was found and what to do."""

    exit_code = EXIT_FATAL


class ConfigError(Fatal):
    """The configuration, a topic or a right is wrong; trying again without a change cannot help."""

    exit_code = EXIT_CONFIG
