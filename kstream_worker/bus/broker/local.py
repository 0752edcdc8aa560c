"""One to three Kafka brokers (KRaft, combined broker and controller) as child processes."""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from kstream_worker.bus.broker.jars import resolve_jars
from kstream_worker.bus.broker.java import find_java
from kstream_worker.bus.broker.process import start_child
from kstream_worker.bus.broker.properties import HOST, Ports, SaslPlain, server_properties, write_properties
from kstream_worker.errors import ConfigError, Fatal

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 15.0
START_ATTEMPTS = 3
LOWEST_PORT, HIGHEST_PORT = 20_000, 32_000  # below the range that systems hand to outgoing connections
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.disableJmx=true")
STARTED = "Kafka Server started"
FOLDER = "kstream-kafka-"
LOG4J = """
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


class LocalKafka:
    """A real Kafka cluster on 127.0.0.1, a context manager.

    Args:
        brokers: how many, 1 or 3.
        data_dir: where data and logs are kept for the next start; by default a temporary folder that `stop` removes.
        security: log in with SASL/PLAIN and obey access-control lists; by default anyone may do anything.
        settings: broker settings under Kafka's own names, over the defaults.
        port: port of the first broker, the next ones follow; by default free ones.

    Example:
        >>> with LocalKafka() as kafka:  # doctest: +SKIP
        ...     print(kafka.bootstrap_servers)
        127.0.0.1:20417
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        data_dir: Path | str | None = None,
        security: SaslPlain | None = None,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise ConfigError(f"a local Kafka has 1 or 3 brokers, not {brokers}: two cannot outvote each other")
        self.brokers = brokers
        self.security = security
        self._settings = dict(settings or {})
        self._port = port
        self._keep = data_dir is not None
        self._explains = False  # the log says why a start failed, so it is left behind
        self._folder = Path(data_dir) if data_dir is not None else None
        self._ports: list[Ports] = []
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * brokers

    def __enter__(self) -> LocalKafka:
        try:
            self.start()
        except BaseException:  # an interrupt too: `__exit__` is not called then
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Addresses for clients, `host:port,...`."""
        return ",".join(f"{HOST}:{ports.client}" for ports in self._ports)

    def log_file(self, broker: int = 0) -> Path:
        """The output of one broker, counted from 0."""
        return self._home / f"broker-{broker}.log"

    def log_tail(self, broker: int = 0) -> str:
        """The last lines of its output."""
        text = self.log_file(broker).read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-20:])

    def pid(self, broker: int = 0) -> int:
        """Process id of one broker."""
        return self._running(broker).pid

    def start(self) -> None:
        """Start all brokers; returns when each serves.

        Raises:
            ConfigError: the extra `[broker]` is missing, jars cannot be had, or a port is taken.
            Fatal: a broker ended or did not come up; the message has the end of its log.
        """
        self._java, self._jars = find_java(), resolve_jars()
        if self._folder is None:
            _sweep()
            self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
        self._home.mkdir(parents=True, exist_ok=True)
        atexit.register(self.stop)
        for attempt in range(START_ATTEMPTS):
            self._choose_ports()
            try:
                self._format()
                self._launch(range(self.brokers))
            except Fatal as error:
                self._end_all()
                if attempt + 1 == START_ATTEMPTS or self._port or "Address already in use" not in str(error):
                    raise
            else:
                self._explains = False
                return

    def stop(self) -> None:
        """End all brokers and remove what was temporary; harmless when done already."""
        atexit.unregister(self.stop)
        self._end_all()
        if not (self._keep or self._explains) and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill(self, broker: int = 0) -> None:
        """SIGKILL: the broker is gone at once, as at a power cut."""
        process = self._running(broker)
        process.kill()
        process.wait()
        self._processes[broker] = None

    def restart(self, broker: int = 0) -> None:
        """Start a broker that was killed (or stop and start a running one) on the same port and data."""
        process = self._processes[broker]
        if process is not None:
            _end([process], graceful=True)
        self._launch([broker])

    def freeze(self, broker: int = 0) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        pid = self.pid(broker)
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # a busy machine takes its time

    def thaw(self, broker: int = 0) -> None:
        """SIGCONT after `freeze`."""
        os.kill(self.pid(broker), signal.SIGCONT)

    def dead(self) -> list[int]:
        """Brokers that were started and have ended by themselves."""
        return [i for i, each in enumerate(self._processes) if each is not None and each.poll() is not None]

    def thaw_all(self) -> None:
        """SIGCONT to every broker that runs."""
        for process in self._processes:
            if process is not None:
                process.send_signal(signal.SIGCONT)

    def revive(self) -> None:
        """Thaw what is frozen and start again what is dead."""
        self.thaw_all()
        self._launch([i for i, process in enumerate(self._processes) if process is None or process.poll() is not None])

    @property
    def _home(self) -> Path:
        if self._folder is None:
            raise Fatal("the local broker is not started")
        return self._folder

    def _running(self, broker: int) -> subprocess.Popen[bytes]:
        process = self._processes[broker]
        if process is None:
            raise Fatal(f"broker {broker} is not running")
        return process

    def _choose_ports(self) -> None:
        taken: set[int] = set()
        clients = [self._port + i if self._port else _free_port(taken) for i in range(self.brokers)]
        for port in clients:
            if not _is_free(port):
                raise ConfigError(f"port {port} on {HOST} is in use; stop what listens there or choose another port")
            taken.add(port)
        self._ports = [Ports(client, _free_port(taken)) for client in clients]

    def _java_command(self, *words: str | Path) -> list[str | Path]:
        log4j = self._home / "log4j2.properties"
        return [
            self._java,
            *JVM,
            f"-Dlog4j2.configurationFile={log4j.as_uri()}",
            "-cp",
            os.pathsep.join(map(str, self._jars)),
            *words,
        ]

    def _format(self) -> None:
        """Write each broker's settings, and prepare its storage unless that was done by an earlier start."""
        (self._home / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
        identity = self._home / "cluster.id"
        if not identity.exists():
            # The first byte is fixed: an id that begins with a hyphen would be read as an option.
            identity.write_text(base64.urlsafe_b64encode(b"K" + secrets.token_bytes(15)).decode().rstrip("="))
        formatting: list[tuple[int, subprocess.Popen[bytes]]] = []
        for i in range(self.brokers):
            folder, file = self._home / f"data-{i}", self._home / f"broker-{i}.properties"
            write_properties(file, server_properties(i, self._ports, folder, self.security, self._settings))
            if not (folder / "meta.properties").exists():
                tool = ("kafka.tools.StorageTool", "format", "-t", identity.read_text(), "-c", file)
                formatting.append((i, start_child(self._java_command(*tool), self.log_file(i))))
        for i, process in formatting:
            if process.wait(START_TIMEOUT_S) != 0:
                raise Fatal(self._failure(i, "could not format its storage"))

    def _launch(self, brokers: Sequence[int]) -> None:
        """Start these brokers and wait until each says that it serves."""
        marks: dict[int, int] = {}
        for i in brokers:
            log = self.log_file(i)
            marks[i] = log.stat().st_size if log.exists() else 0
            command = self._java_command("kafka.Kafka", self._home / f"broker-{i}.properties")
            self._processes[i] = start_child(command, log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while marks:
            for i in [i for i, mark in marks.items() if self._serves(i, mark)]:
                del marks[i]
            if time.monotonic() > deadline:
                raise Fatal(self._failure(min(marks), f"did not start within {START_TIMEOUT_S:.0f} s"))
            time.sleep(0.05)

    def _serves(self, broker: int, mark: int) -> bool:
        ended = self._running(broker).poll() is not None
        with self.log_file(broker).open("rb") as log:
            log.seek(mark)
            text = log.read().decode(errors="replace")
        if ended:
            raise Fatal(self._failure(broker, "ended while starting"))
        return STARTED in text

    def _failure(self, broker: int, what: str) -> str:
        self._explains = True
        return f"local Kafka broker {broker} {what}; its log is {self.log_file(broker)} and ends with:\n" + (
            self.log_tail(broker)
        )

    def _end_all(self) -> None:
        running = [process for process in self._processes if process is not None]
        _end(running, graceful=self._keep)
        self._processes = [None] * self.brokers


def _end(processes: Sequence[subprocess.Popen[bytes]], *, graceful: bool) -> None:
    """SIGTERM, then SIGKILL; the latter at once where no data is worth an orderly stop."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM if graceful else signal.SIGKILL)
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _sweep() -> None:
    """Remove temporary folders whose process was killed before it could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        owner = folder.name.removeprefix(FOLDER).split("-")[0]
        if owner.isdigit() and not _is_running(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port(taken: set[int]) -> int:
    """A free port that is not in `taken`, and is from now on."""
    for _ in range(1000):
        port = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
        if port not in taken and _is_free(port):
            taken.add(port)
            return port
    raise Fatal(f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} on {HOST}")
