from __future__ import annotations

import secrets

import pytest

from kstream_worker.__main__ import main

pytestmark = pytest.mark.kafka


@pytest.fixture
def flags(kafka: str) -> list[str]:
    app_id = f"cli-{secrets.token_hex(4)}"
    return [
        *("--bootstrap-servers", kafka),
        *("--input-topic", f"{app_id}-readings"),
        *("--set", f"app.id={app_id}"),
        *("--set", "input.y=v"),
    ]


def test_topics_then_check(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *flags]) == 78
    shown = capsys.readouterr()
    assert shown.out.count("does not exist") == 5
    assert "5 problems found" in shown.err
    assert main(["topics", *flags]) == 78
    assert capsys.readouterr().out.count("missing") == 5
    assert main(["topics", *flags, "--create", "--partitions", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("2 partitions") == 5
    assert shown.err.count("created") == 5
    assert main(["check", *flags]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_a_wrong_client_setting_is_found(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *flags, "--set", "bus.kafka.consumer.max_poll_record=5"]) == 78
    assert "max_poll_records" in capsys.readouterr().out


def test_a_broker_that_is_away(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    away = ["--bootstrap-servers", "127.0.0.1:1", "--set", "bus.kafka.common.bootstrap_timeout_ms=500"]
    assert main(["check", *flags, *away]) == 1
    shown = capsys.readouterr().err
    assert "127.0.0.1:1" in shown
    assert "Traceback" not in shown
