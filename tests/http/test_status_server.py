from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kstream_worker.errors import ConfigError
from kstream_worker.http import Status, StatusServer
from kstream_worker.records import TopicPartition
from kstream_worker.telemetry.metrics import Metrics

TP = TopicPartition("readings", 2)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def status(clock: Clock) -> Status:
    return Status(limit_s=60.0, max_alarms=3, clock=clock)


@pytest.fixture
def server(status: Status) -> Iterator[StatusServer]:
    server = StatusServer(status, Metrics("1.0", status).render, "127.0.0.1", 0)
    yield server
    server.close()


def get(server: StatusServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers.get("Content-Type", ""), response.read()
    finally:
        connection.close()


def get_json(server: StatusServer, path: str) -> tuple[int, Any]:
    code, content_type, body = get(server, path)
    assert content_type == "application/json"
    return code, json.loads(body)


def test_health_follows_the_heartbeat(server: StatusServer, status: Status, clock: Clock) -> None:
    clock.now += 1000.0  # compiling and fencing before the first turn of the loop are no stall
    assert get_json(server, "/healthz") == (
        200,
        {"status": "starting", "heartbeat_age_seconds": 0.0, "stalled_partitions": []},
    )
    status.heartbeat()
    clock.now += 60.0
    assert get_json(server, "/healthz")[0] == 200
    clock.now += 0.5
    code, body = get_json(server, "/healthz")
    assert (code, body["status"], body["heartbeat_age_seconds"]) == (503, "stalled", 60.5)
    status.heartbeat()
    assert get_json(server, "/healthz")[1]["status"] == "ok"


def test_health_sees_one_partition_that_stands_still(server: StatusServer, status: Status, clock: Clock) -> None:
    def later(position: int, lag: int | None) -> int:
        clock.now += 50.0
        status.heartbeat()
        status.progress(TP, position, lag)
        return get_json(server, "/healthz")[0]

    assert [later(10, 5), later(10, 5)] == [200, 200]
    assert later(10, 9) == 503
    assert get_json(server, "/healthz")[1]["stalled_partitions"] == ["readings[2]"]
    assert later(11, 9) == 200
    assert [later(11, 0), later(11, 0), later(11, 0)] == [200, 200, 200]
    assert [later(11, None), later(11, None), later(11, None)] == [200, 200, 200]
    clock.now += 100.0
    status.heartbeat()
    status.forget_partition(TP)
    assert get_json(server, "/healthz")[0] == 200


def test_a_partition_started_again_must_pass_the_place_where_it_stood(
    server: StatusServer, status: Status, clock: Clock
) -> None:
    def later(seconds: float, position: int) -> int:
        clock.now += seconds
        status.heartbeat()
        status.progress(TP, position, 5)
        return get_json(server, "/healthz")[0]

    assert [later(20.0, 10), later(20.0, 10), later(20.0, 10)] == [200, 200, 200]
    status.restoring(TP, 0, 7)
    assert [later(50.0, 3), later(50.0, 8), later(50.0, 10)] == [200, 200, 200]  # reads again what it had read
    assert [later(20.0, 10), later(20.0, 10)] == [200, 503]
    assert later(1.0, 11) == 200


def test_a_restore_that_stands_still_fails_liveness(server: StatusServer, status: Status, clock: Clock) -> None:
    def later(done: int) -> int:
        clock.now += 50.0
        status.heartbeat()
        status.restoring(TP, done, 100)
        return get_json(server, "/healthz")[0]

    assert [later(0), later(10), later(20), later(30), later(30)] == [200] * 5
    assert later(30) == 503
    assert get_json(server, "/healthz")[1]["stalled_partitions"] == ["readings[2]"]
    status.forget_partition(TP)
    assert get_json(server, "/healthz")[0] == 200


def test_readiness_needs_all_partitions(server: StatusServer, status: Status) -> None:
    assert get_json(server, "/readyz")[0] == 503
    status.set_assignment(4, 3)
    code, body = get_json(server, "/readyz")
    assert (code, body) == (
        503,
        {"status": "not ready", "assigned_partitions": 4, "ready_partitions": 3, "restoring": {}},
    )
    status.set_assignment(4, 4)
    assert get_json(server, "/readyz") == (
        200,
        {"status": "ready", "assigned_partitions": 4, "ready_partitions": 4, "restoring": {}},
    )
    status.set_assignment(0, 0)
    assert get_json(server, "/readyz")[0] == 503


def test_readiness_shows_the_progress_of_each_restore(server: StatusServer, status: Status) -> None:
    def restoring() -> object:
        code, body = get_json(server, "/readyz")
        assert code == 503
        return body["restoring"]

    status.set_assignment(2, 0)
    status.restoring(TopicPartition("readings", 10), 0, 50)
    status.restoring(TP, 30, 120)
    assert restoring() == {"readings[2]": {"done": 30, "total": 120}, "readings[10]": {"done": 0, "total": 50}}
    status.restoring(TP, 120, 120)  # read; its input is not replayed yet
    assert restoring() == {"readings[10]": {"done": 0, "total": 50}}
    status.forget_partition(TopicPartition("readings", 10))
    assert restoring() == {}
    status.set_assignment(1, 1)
    assert get_json(server, "/readyz")[0] == 200


def test_alarms_are_listed_up_to_a_bound(server: StatusServer, status: Status) -> None:
    assert get_json(server, "/alarms")[1] == {"alarms": [], "in_alarm": 0, "limit": 3, "dropped_total": 0}
    for key in ("pump-1", "pump-2", "pümp 3", "pump-4"):
        status.raise_alarm(key, {"evidence": 12.5, "worst": float("inf")})
    body = get_json(server, "/alarms")[1]
    assert [alarm["key"] for alarm in body["alarms"]] == ["pump-1", "pump-2", "pümp 3"]
    assert body["alarms"][0] == {"key": "pump-1", "evidence": 12.5, "worst": None}
    assert (body["in_alarm"], body["dropped_total"]) == (4, 1)
    status.clear_alarm("pump-4")
    status.clear_alarm("pump-1")
    body = get_json(server, "/alarms")[1]
    assert ([alarm["key"] for alarm in body["alarms"]], body["in_alarm"]) == (["pump-2", "pümp 3"], 2)
    status.raise_alarm("pump-2", {"evidence": 99})
    assert get_json(server, "/alarms")[1]["alarms"][0]["evidence"] == 99


def test_metrics_hold_no_key(server: StatusServer, status: Status) -> None:
    status.heartbeat()
    status.set_assignment(1, 1)
    status.raise_alarm("pump-secret", {"key": "pump-secret"})
    code, content_type, body = get(server, "/metrics?name[]=up")
    assert code == 200
    assert content_type.startswith("text/plain")
    assert b"kstream_worker_ready 1.0" in body
    assert b"pump-secret" not in body


def test_other_paths_and_methods(server: StatusServer) -> None:
    code, _, body = get(server, "/")
    assert code == 404
    assert b"/healthz" in body
    assert get(server, "/healthz/../metrics")[0] == 404
    assert get(server, "/healthz", "HEAD") == (200, "application/json", b"")
    assert get(server, "/healthz", "POST")[0] == 501


def test_a_page_that_fails_is_an_error_and_the_server_lives(status: Status) -> None:
    def broken() -> tuple[str, bytes]:
        raise RuntimeError("no metrics")

    server = StatusServer(status, broken, "127.0.0.1", 0)
    try:
        assert get(server, "/metrics")[0] == 500
        assert get(server, "/healthz")[0] == 200
    finally:
        server.close()


def test_idle_connections_cannot_exhaust_it(server: StatusServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(8)]
    try:
        with pytest.raises((http.client.HTTPException, OSError)):
            get(server, "/healthz")
        for connection in idle[:4]:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.0 200")
        answered = [_answers(server) for _ in range(100)]
        assert any(answered)
    finally:
        for connection in idle:
            connection.close()


def _answers(server: StatusServer) -> bool:
    try:
        return get(server, "/healthz")[0] == 200
    except (http.client.HTTPException, OSError):
        return False


def test_a_taken_port_is_a_configuration_error(server: StatusServer, status: Status) -> None:
    with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{server.port} .*Address already in use"):
        StatusServer(status, Metrics("1").render, "127.0.0.1", server.port)
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0"):
        StatusServer(status, Metrics("1").render, "192.0.2.1", 0)
    with pytest.raises(ConfigError, match=r"cannot listen on no\.such\.host\.invalid:0"):
        StatusServer(status, Metrics("1").render, "no.such.host.invalid", 0)


def test_closing_frees_the_port(status: Status) -> None:
    server = StatusServer(status, Metrics("1").render, "127.0.0.1", 0)
    port = server.port
    assert get(server, "/healthz")[0] == 200
    server.close()
    again = StatusServer(status, Metrics("1").render, "127.0.0.1", port)
    assert again.port == port
    again.close()
