"""`kstream-worker broker`, as a person uses it."""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest
from kafka import KafkaAdminClient

from kstream_worker.bus.broker.local import HOST
from kstream_worker.cli import broker
from kstream_worker.errors import EXIT_CONFIG, ConfigError

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from kstream_worker.cli.entry import main; sys.exit(main(['broker', '--port', sys.argv[1]]))",
]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    broker.add_parser(parser.add_subparsers())
    return parser.parse_args(["broker", *words])


@pytest.fixture
def taken_port():
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.kafka
def test_it_serves_at_the_port_until_an_interrupt(taken_port: int) -> None:
    port = 20_000 + taken_port % 12_000
    process = subprocess.Popen([*COMMAND, str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline().strip() == f"{HOST}:{port}"
        with closing(KafkaAdminClient(bootstrap_servers=f"{HOST}:{port}")) as admin:
            admin.create_topics({"tried": {"num_partitions": 1}})
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "Ctrl-C" in process.stderr.read()
    with socket.socket() as probe:
        assert probe.connect_ex((HOST, port)) != 0


def test_a_taken_port_is_a_matter_of_configuration(taken_port: int) -> None:
    with pytest.raises(ConfigError, match=f"port {taken_port} .*choose another") as caught:
        broker.run(parse("--port", str(taken_port)))
    assert caught.value.exit_code == EXIT_CONFIG


@pytest.mark.parametrize("words", [["--port", "0"], ["--port", "x"], ["--brokers", "2"]])
def test_wrong_usage_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*words)
    assert caught.value.code == 2
    assert words[1] in capsys.readouterr().err
