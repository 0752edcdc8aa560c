"""Where chaos takes place: three brokers, one application's topics, its configuration."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos import client
from benchmarks.chaos.traffic import Shape
from kstream_worker.bus.broker import LocalKafka
from kstream_worker.config import Config, load

KINDS = ("estimates", "alarms", "dead-letters")
WARMUP = 150  # samples; short, so that keys come of age, alarm and arm again between two faults
BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "3000",
    "log.segment.delete.delay.ms": "1000",
    "num.recovery.threads.per.data.dir": "2",
}
IMPATIENT = {
    "kafka-python": """
[bus.kafka.consumer]
session_timeout_ms = 10000
heartbeat_interval_ms = 2000
max_poll_interval_ms = 10000
[bus.kafka.producer]
delivery_timeout_ms = 8000
transaction_timeout_ms = 10000
""",
    "confluent": """
[bus.kafka.consumer]
"session.timeout.ms" = 10000
"heartbeat.interval.ms" = 2000
"max.poll.interval.ms" = 10000
[bus.kafka.producer]
"message.timeout.ms" = 8000
"transaction.timeout.ms" = 10000
""",
}
# Sessions as long as by default; heartbeats more often, since members learn of a rebalance from them.
PATIENT = {
    "kafka-python": "\n[bus.kafka.consumer]\nheartbeat_interval_ms = 1000\n",
    "confluent": '\n[bus.kafka.consumer]\n"heartbeat.interval.ms" = 1000\n',
}
CLIENTS = tuple(IMPATIENT)


def three_brokers(**settings: str) -> LocalKafka:
    """A cluster that keeps everything three times and serves with two."""
    return LocalKafka(brokers=3, settings={**BROKER, **settings})


@dataclass
class Arena:
    """One application on a cluster.

    Attributes:
        kafka: the cluster.
        folder: for configuration and logs.
        app_id: also the group.
        client: `bus.client` of the workers.
        shape: of the records.
        state: settings of section `state`, as TOML lines.
        extra: further sections, as TOML.
        replicas: of the topics.
        patient: keep the client's own time-outs; else they are short, so that faults soon show.
    """

    kafka: LocalKafka
    folder: Path
    app_id: str
    client: str
    shape: Shape
    state: str = "interval = 10\n"
    extra: str = ""
    replicas: int = 3
    patient: bool = False
    config_file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.config_file = self.folder / f"{self.app_id}.toml"
        self.config_file.write_text(self._config())

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap_servers

    @property
    def topic(self) -> str:
        return f"{self.app_id}-input"

    @property
    def partitions(self) -> int:
        return self.shape.partitions

    @property
    def state_topic(self) -> str:
        return f"{self.app_id}-state"

    def output(self, kind: str) -> str:
        return f"{self.app_id}-{kind}"

    def config(self) -> Config:
        """What the workers run with."""
        return load(self.config_file)

    def create_topics(self) -> None:
        """The input topic by hand, the others as a user would make them."""
        keep = {"retention.ms": "-1"}  # record times lie in the past
        client.create_topic(self.bootstrap, self.topic, self.partitions, keep, self.replicas)
        self.command("topics", "--create")

    def command(self, *words: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run `kstream-worker` with this configuration to its end."""
        name, *rest = words
        return subprocess.run(
            [sys.executable, "-m", "kstream_worker", name, "--config", str(self.config_file), *rest],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def static(self, i: int) -> list[str]:
        """Flags that make a worker the i-th static member."""
        return ["--set", f"bus.kafka.group_instance_id={self.app_id}-{i}"]

    def wait_in_sync(self, timeout_s: float = 90.0) -> bool:
        """Wait until every replica is in sync; only then the next broker may fail."""
        deadline = time.monotonic() + timeout_s
        while not client.in_sync(self.bootstrap):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.3)
        return True

    def require_replication(self) -> dict[str, tuple[int, int]]:
        """(replicas, in sync) by topic.

        Raises:
            RuntimeError: a topic, internal ones included, is kept less than three times.
        """
        found = client.replication(self.bootstrap)
        internal = {"__consumer_offsets", "__transaction_state"}
        thin = {name: n for name, (n, _) in found.items() if n < 3}
        if thin or not internal <= found.keys():
            raise RuntimeError(f"not kept three times: {thin or internal - found.keys()}")
        return found

    def _config(self) -> str:
        x = 'x = "x"\n' if self.shape.mode == "explicit" else ""
        servers = ", ".join(f'"{each}"' for each in self.bootstrap.split(","))
        chosen = "" if self.client == "kafka-python" else f'[bus]\nclient = "{self.client}"\n'
        timing = (PATIENT if self.patient else IMPATIENT)[self.client]
        return (
            f'app.id = "{self.app_id}"\n{chosen}'
            f"[bus.kafka]\nbootstrap_servers = [{servers}]\n{timing}"
            f'[input]\ntopic = "{self.topic}"\n{x}y = "y"\ndims = 2\ntimestamp = "ts"\n'
            f"[detector]\narl = 5000\nwarmup = {WARMUP}\n"
            f"[commit]\ninterval = 0.5\ntimeout = 8\n"
            f"[telemetry]\nport = 0\n[state]\nttl = {self.shape.ttl_s}\nmax_future_skew = 60\n{self.state}{self.extra}"
        )
