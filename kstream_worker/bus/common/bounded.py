"""A deadline for client calls that have none: they run in a daemon thread, and the caller waits only so long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadline:
    """One shrinking deadline for a chain of calls."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + max(0.0, timeout_s)

    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def left_ms(self) -> int:
        """Milliseconds left, never negative."""
        return int(self.left_s() * 1000)

    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._end


class Running(Generic[T]):
    """A call that runs in its own daemon thread, to be waited for once or several times.

    Args:
        call: the function to run.
        name: of the thread.
    """

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._values: list[T] = []
        self._error: Exception | None = None
        self._finished = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._values.append(self._call())
        except Exception as error:  # handed to the thread that waits
            self._error = error
        finally:
            self._finished.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the call; False when it still runs."""
        return self._finished.wait(max(0.0, timeout_s))

    def result(self) -> T:
        """What the finished call returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._values[0]


def run_bounded(call: Callable[[], object], timeout_s: float, name: str) -> bool:
    """Run a call and wait at most `timeout_s` for it; False when it was left behind in its thread.

    Raises:
        Exception: whatever the call raised in time.
    """
    running = Running(call, name)
    if not running.wait(timeout_s):
        return False
    running.result()
    return True
