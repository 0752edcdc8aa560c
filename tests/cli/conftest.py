from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from state_jobs import Jobs, Shown

from kstream_worker import app
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.config import Config
from kstream_worker.ports import Bus


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Commands configure the logs of the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.fixture
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, _quiet: None) -> FakeBroker:
    """Where the command line finds brokers, too."""
    broker, build_bus = FakeBroker(), app.build_bus

    def build(config: Config) -> Bus:
        if config.bus.kind == "files":
            return build_bus(config)
        return broker.bus(topic=config.input.topic, group=config.app.id, identity="tool")

    monkeypatch.setattr(app, "build_bus", build)
    return broker


@pytest.fixture(params=["fake", "files"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, broker: FakeBroker) -> Jobs:
    """Applications on the fake broker, then on files."""
    return Jobs(request.param, tmp_path, broker)


@pytest.fixture
def fake_jobs(tmp_path: Path, broker: FakeBroker) -> Jobs:
    """Applications on the fake broker."""
    return Jobs("fake", tmp_path, broker)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], _quiet: None) -> Shown:
    """Standard output and error since the last call; lines of error are joined again."""

    def take() -> tuple[str, str]:
        out, err = capsys.readouterr()
        return out, " ".join(err.split())

    return take
