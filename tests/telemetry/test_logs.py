from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import structlog

from kstream_worker.config import ClientSettings
from kstream_worker.telemetry import logs

SECRET = 'pa"ss\\wörd'


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    logging.getLogger("kafka.client").setLevel(logging.NOTSET)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_with_utc_times() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream=stream)
    structlog.get_logger("kstream_worker.worker.loop").info("assignment", partitions=["t[0]"], took_s=0.5)
    (line,) = lines(stream)
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {
        "event": "assignment",
        "level": "info",
        "logger": "kstream_worker.worker.loop",
        "partitions": ["t[0]"],
        "took_s": 0.5,
    }


def test_levels_of_ours_and_of_libraries() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream=stream)
    ours = structlog.get_logger("kstream_worker.x")
    ours.debug("hidden")
    ours.info("shown")
    library = logging.getLogger("kafka.client")
    library.setLevel(logging.DEBUG)  # as kafka-python does itself
    library.info("hidden")
    logging.getLogger("kafka.client").warning("broker %s is away", "b1")
    assert [(line["event"], line["level"]) for line in lines(stream)] == [
        ("shown", "info"),
        ("broker b1 is away", "warning"),
    ]


@pytest.mark.parametrize(("level", "shown"), [("debug", "do"), ("warning", "wx"), ("critical", "x")])
def test_other_levels(level: str, shown: str) -> None:
    stream = io.StringIO()
    logs.configure(level, "json", stream=stream)
    logging.getLogger("kafka.client").debug("d")
    structlog.get_logger("kstream_worker").debug("o")
    if level != "debug":
        logging.getLogger("kafka.client").warning("w")
        logging.getLogger("kafka.client").critical("x")
    assert "".join(str(line["event"]) for line in lines(stream)) == shown


def test_warnings_become_logs() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old setting", UserWarning, stacklevel=1)
    assert "old setting" in str(lines(stream)[0]["event"])


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("secret", [SECRET, "hunter22", "abc"])
def test_secrets_never_reach_the_log(form: str, secret: str) -> None:
    stream = io.StringIO()
    logs.configure("debug", form, [secret], stream=stream)
    log = structlog.get_logger("kstream_worker.x")
    log.info(f"event with {secret}", text=f"url://me:{secret}@host", sasl_plain_password="other-secret")
    log.info("nested", settings={"ssl_password": "other-secret", "a": [secret, (secret,)]}, raw=secret.encode().hex())
    log.info("objects", error=ValueError(secret), table=ClientSettings(password="other-secret"), count=3)
    nothing: list[str] = []
    try:
        nothing.index(f"login failed for {secret}")
    except ValueError:
        log.exception("failed")
    log.error("failed", exc_info=RuntimeError(f"login failed for {secret}"))
    logging.getLogger("kafka").error("sent %r", {"password": secret})
    shown = stream.getvalue()
    for written in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], "other-secret"):
        assert written not in shown
    assert "login failed for ***" in shown
    assert "count" in shown


def test_numbers_of_numpy_and_those_json_lacks() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream=stream)
    numbers = {
        "count": np.int64(3),
        "evidence": np.float64("inf"),
        "ratio": float("nan"),
        "up": True,
        "x": np.float64(0.5),
    }
    structlog.get_logger("kstream_worker.x").info("numbers", **numbers)
    assert "NaN" not in stream.getvalue()
    (line,) = lines(stream)
    assert {name: line[name] for name in numbers} == {
        "count": 3,
        "evidence": "inf",
        "ratio": "nan",
        "up": True,
        "x": 0.5,
    }


def test_the_token_of_a_commit_is_no_secret() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream=stream)
    structlog.get_logger("kstream_worker.x").info("committed", token="ab12", password="")
    assert lines(stream)[0]["token"] == "ab12"


def test_a_library_that_repeats_itself_is_heard_twice_a_minute() -> None:
    now = [0.0]
    wanted = logs.Wanted(logging.INFO, lambda: now[0])

    def shown(name: str, message: str, *arguments: object, level: int = logging.ERROR) -> bool:
        return wanted(logging.LogRecord(name, level, "", 0, message, arguments, None))

    assert shown("kafka.coordinator", "no answer from node %s", 1)
    now[0] = 29.0
    assert not shown("kafka.coordinator", "no answer from node %s", 1)
    assert shown("kafka.coordinator", "another line")
    assert shown("kafka.coordinator", "no answer from node %s", 1, level=logging.CRITICAL)
    assert shown("kstream_worker.worker.loop", "assignment")
    assert shown("kstream_worker.worker.loop", "assignment")
    now[0] = 31.0
    assert shown("kafka.coordinator", "no answer from node %s", 1)
    assert not shown("kafka.coordinator", "no answer from node %s", 1)
    for number in range(1000):
        assert shown("kafka.coordinator", f"line {number}")
