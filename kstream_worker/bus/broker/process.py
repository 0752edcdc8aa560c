"""Child processes that never outlive the process that started them.

`subprocess` offers `preexec_fn` for that, which is unsafe beside threads. Instead a child is started as a tiny Python
that asks the kernel to be killed with its parent and then becomes the program itself. The kernel's "parent" is the
*thread* that forked, so one thread, which lives as long as the process, starts all children.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_BECOME = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):  # the parent died before that
        os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class _Starter:
    """The one thread that forks."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="kstream-broker-starter", daemon=True).start()

    def _work(self) -> None:
        while True:
            self._jobs.get()()

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """`subprocess.Popen` made by this thread."""
        answer: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()

        def job() -> None:
            try:
                answer.put(subprocess.Popen(command, **options))
            except OSError as error:
                answer.put(error)

        self._jobs.put(job)
        made = answer.get()
        if isinstance(made, OSError):
            raise made
        return made


_starter: _Starter | None = None
_starter_lock = threading.Lock()


def start_child(command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
    """Start a program in its own session, its output appended to `log`.

    It is killed when this process ends, however that happens (on Linux).

    Raises:
        OSError: the program or the log file cannot be opened.
    """
    global _starter  # noqa: PLW0603 - one thread per process, made when first needed
    with _starter_lock:
        if _starter is None:
            _starter = _Starter()
    words = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), *map(str, command)]
    with log.open("ab") as output:
        return _starter.popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
