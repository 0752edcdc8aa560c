"""The local broker itself: it starts, serves, survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka_support import MakeTopic

from kstream_worker.bus.broker import LocalKafka, SaslPlain
from kstream_worker.bus.broker.jars import Jar, locked_jars, resolve_jars
from kstream_worker.bus.broker.java import java_version
from kstream_worker.bus.broker.properties import Ports, server_properties, write_properties
from kstream_worker.errors import ConfigError, Fatal

# Starts a broker in a folder, tells the broker's process id, and waits to be killed.
OWNER = """
import sys, time
from kstream_worker.bus.broker import LocalKafka
broker = LocalKafka(data_dir=sys.argv[1])
broker.start()
print(broker.pid(), flush=True)
time.sleep(300)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} lives on"
        time.sleep(0.05)


@pytest.mark.kafka
def test_a_killed_owner_takes_its_broker_along_and_keeps_its_folder(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        owner.kill()
    wait_until_dead(pid)
    assert (tmp_path / "data-0" / "meta.properties").exists()


@pytest.mark.kafka
def test_data_survive_a_freeze_and_a_kill(kafka_process: LocalKafka, make_own_topic: MakeTopic) -> None:
    topic, pid = make_own_topic(3), kafka_process.pid()
    kafka_process.freeze()
    assert Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    kafka_process.thaw()
    kafka_process.kill()
    assert not is_alive(pid)
    with pytest.raises(Fatal, match="not running"):
        kafka_process.pid()
    kafka_process.start()
    with closing(KafkaAdminClient(bootstrap_servers=kafka_process.bootstrap_servers)) as admin:
        assert len(admin.describe_topics([topic])[0]["partitions"]) == 3


@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_why_and_where_its_log_is() -> None:
    broker = LocalKafka(settings={"log.retention.bytes": "much"})
    with pytest.raises(Fatal, match=r"(?s)its log is .*broker-0\.log.*log\.retention\.bytes") as caught:
        broker.start()
    log = Path(str(caught.value).split("its log is ")[1].split(" and ends")[0])
    assert log.exists()
    broker.stop()
    subprocess.run(["rm", "-rf", log.parent], check=True)  # noqa: S607


def test_a_taken_port_is_refused_before_anything_starts(free_listener: int) -> None:
    broker = LocalKafka(port=free_listener)
    with pytest.raises(ConfigError, match=f"port {free_listener} .* is in use"):
        broker.start()
    broker.stop()


@pytest.fixture
def free_listener():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_two_brokers_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 or 3 brokers"):
        LocalKafka(brokers=2)


@pytest.mark.parametrize("users", [{"worker": "secret"}, {"admin": 'a"b'}])
def test_users_that_the_broker_could_not_serve_are_refused(users: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        SaslPlain(users)


def test_three_brokers_replicate_and_all_listen_on_this_machine_alone(tmp_path: Path) -> None:
    ports = [Ports(1, 2), Ports(3, 4), Ports(5, 6)]
    made = [server_properties(i, ports, tmp_path, None, {"min.insync.replicas": "3"}) for i in range(3)]
    assert [each["node.id"] for each in made] == ["1", "2", "3"]
    assert {each["controller.quorum.voters"] for each in made} == {"1@127.0.0.1:2,2@127.0.0.1:4,3@127.0.0.1:6"}
    for each in made:
        assert each["transaction.state.log.replication.factor"] == "3"
        assert each["min.insync.replicas"] == "3"  # settings win
        assert all("//127.0.0.1:" in place for place in each["listeners"].split(","))


def test_passwords_are_in_a_file_that_only_the_user_can_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    write_properties(path, server_properties(0, [Ports(1, 2)], tmp_path, SaslPlain({"admin": "secret"}), {}))
    assert 'user_admin="secret"' in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_jars_are_pinned_and_a_damaged_one_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = next(jar for jar in locked_jars() if jar.name == "jspecify")
    monkeypatch.setattr("kstream_worker.bus.broker.jars.locked_jars", lambda: [smallest])
    (found,) = resolve_jars()
    right = found.read_bytes()
    found.write_bytes(b"not a jar")
    assert [path.read_bytes() for path in resolve_jars()] == [right]


def test_a_jar_that_is_not_the_pinned_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    smallest = next(jar for jar in locked_jars() if jar.name == "jspecify")
    resolve_jars()
    other = Jar(smallest.group, smallest.name, smallest.version, "0" * 64)
    monkeypatch.setattr("kstream_worker.bus.broker.jars.locked_jars", lambda: [other])
    with pytest.raises(ConfigError, match=r"jspecify.*SHA-256 is not the pinned one"):
        resolve_jars()


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.config", None)
    with pytest.raises(ConfigError, match=r"pip install 'kstream-worker\[broker\]'"):
        resolve_jars()


def test_what_is_no_java_has_version_0(tmp_path: Path) -> None:
    fake = tmp_path / "java"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    assert java_version(fake) == 0
    assert java_version(tmp_path / "missing") == 0
