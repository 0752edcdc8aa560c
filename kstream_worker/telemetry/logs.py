"""Structured logs on standard error: one JSON object a line, or text for people. Secrets never get that far."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from numbers import Integral, Real
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from kstream_worker.config.redact import HIDDEN, is_secret

# Loggers of the client that report as errors what passes by itself: connections that are made again, open transactions
# that a stable read waits for, metadata of a new topic. What lasts, the worker reports itself.
_NOISY = ("kafka.coordinator.assignors", "kafka.coordinator.consumer", "kafka.net", "kafka.cluster")
_REPEAT_S = 30.0  # a client that looks for a broker says the same every second
_REMEMBERED = 256  # kinds of lines
_MIN_SECRET = 3  # shorter texts stand in ordinary words; names still hide them


class Scrubber:
    """Replaces secrets: by the name of a field, and by their text wherever it stands.

    Args:
        secrets: texts that must not appear.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= _MIN_SECRET for form in _written(secret)}
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """`text` without secrets."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """`value`, fit to be written: texts scrubbed, unknown objects as their scrubbed `repr`."""
        if name and is_secret(name) and value not in (None, ""):
            return HIDDEN
        if value is None or isinstance(value, bool | Real):
            return _number(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item, str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.value(item) for item in value]
        return self.text(repr(value))

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> EventDict:
        """As a structlog processor. What structlog itself put there (`_record`, `_from_structlog`) is left alone."""
        del logger, method
        return {name: value if name.startswith("_") else self.value(value, name) for name, value in event.items()}


def _number(value: Any) -> bool | int | float | str | None:
    """A number as JSON can write it, numpy's too; NaN and infinity, which JSON lacks, as text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))


def _written(secret: str) -> set[str]:
    """A secret as itself, and as `repr` and JSON write it."""
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}


def configure(
    level: str = "info", form: str = "json", secrets: Iterable[str] = (), stream: TextIO | None = None
) -> None:
    """Send all logs of the process, those of libraries too, to one stream. Called once, by the command line.

    Args:
        level: `debug` to `critical`; libraries log from `warning` on, and repeat themselves every 30 s at most, unless
            this is `debug`.
        form: `json` or `console`.
        secrets: texts to keep out.
        stream: standard error by default.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
        Scrubber(secrets),
    ]
    target = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.addFilter(Wanted(logging.getLevelNamesMapping()[level.upper()]))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(form, target)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)


class Wanted:
    """Which records are written. Libraries that log each connection set levels of their own, so the handler decides,
    not the loggers: from `warning` on, and the same kind of line once in 30 s; all of them at `debug`.

    Args:
        level: of our own loggers.
        clock: monotonic seconds.
    """

    def __init__(self, level: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._level = level
        self._clock = clock
        self._shown: dict[tuple[str, str], float] = {}

    def __call__(self, record: logging.LogRecord) -> bool:
        """Whether to write it, as a filter of `logging`."""
        if record.name == "kstream_worker" or record.name.startswith("kstream_worker."):
            return record.levelno >= self._level
        if self._level <= logging.DEBUG or record.levelno >= logging.CRITICAL:
            return record.levelno >= self._level
        if record.levelno < max(self._level, logging.WARNING) or record.name.startswith(_NOISY):
            return False
        return self._first_for_a_while((record.name, str(record.msg)))

    def _first_for_a_while(self, kind: tuple[str, str]) -> bool:
        now = self._clock()
        if now - self._shown.get(kind, -math.inf) < _REPEAT_S:
            return False
        if len(self._shown) >= _REMEMBERED:
            self._shown.clear()
        self._shown[kind] = now
        return True


def _renderer(form: str, stream: TextIO) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer(sort_keys=False)
    return structlog.dev.ConsoleRenderer(colors=stream.isatty())
