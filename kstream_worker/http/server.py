"""A small HTTP server on a thread of its own: `/metrics`, `/healthz`, `/readyz`, `/alarms`."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import structlog

from kstream_worker.errors import ConfigError
from kstream_worker.http.status import Status

log = structlog.get_logger(__name__)

_JSON = "application/json"
_MAX_REQUESTS = 8  # at a time; beyond it connections are closed at once, so that nobody can exhaust the worker
_TIMEOUT_S = 5.0

Render = Callable[[], tuple[str, bytes]]
Page = tuple[HTTPStatus, str, bytes]


class StatusServer:
    """Serves one worker's status until closed.

    Args:
        status: what is shown.
        metrics: gives content type and text of `/metrics`.
        host: address to listen on.
        port: 0 takes a free one; see `port`.

    Raises:
        ConfigError: the address cannot be used; names it.
    """

    def __init__(self, status: Status, metrics: Render, host: str, port: int) -> None:
        self._pages: dict[str, Callable[[], Page]] = {
            "/metrics": lambda: (HTTPStatus.OK, *metrics()),
            "/healthz": lambda: _answer(*status.health()),
            "/readyz": lambda: _answer(*status.readiness()),
            "/alarms": lambda: (HTTPStatus.OK, _JSON, msgspec.json.encode(status.alarms())),
        }
        try:
            self._server = _Server(host, port, self._page)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"cannot listen on {host}:{port} for metrics and health: {reason}. Set telemetry.host to an address "
                "of this machine and telemetry.port to a free port, 0 (any) or none (off)."
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_TIMEOUT_S)

    def _page(self, path: str) -> Page:
        page = self._pages.get(path)
        if page is None:
            known = ", ".join(self._pages)
            return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"Not found. There are {known}.\n".encode()
        try:
            return page()
        except Exception:
            log.exception("a status page failed", path=path)
            return HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", b"Internal error, see the logs.\n"


def _answer(good: bool, body: dict[str, Any]) -> Page:
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, _JSON, msgspec.json.encode(body)


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, page: Callable[[str], Page]) -> None:
        self.page = page
        self._slots = threading.BoundedSemaphore(_MAX_REQUESTS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """As the parent's, without its look-up of the host's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread, or close the connection when too many are open."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread of one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; it must not write a traceback into the logs."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT_S
    server_version = "kstream-worker"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(body=True)

    def do_HEAD(self) -> None:
        self._send(body=False)

    def _send(self, *, body: bool) -> None:
        status, content_type, content = self.server.page(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds; they are not logged."""
