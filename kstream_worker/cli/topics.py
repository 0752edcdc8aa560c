"""`kstream-worker topics`: the topics that a configuration needs, and with `--create` those that are missing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstream_worker.cli.options import add_config, load_config, quiet_logs
from kstream_worker.errors import EXIT_CONFIG, EXIT_OK, ConfigError

if TYPE_CHECKING:
    from kstream_worker.config import Config
    from kstream_worker.ports import Cluster

_DAY_MS = 86_400_000
_ENVELOPE_BYTES = 65_536  # headers of a dead letter, and the record's own frame
_BROKERS_LARGEST_BYTES = 1_048_588  # `max.message.bytes` where nobody set it


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("topics", help="list the topics that are needed, or create those missing")
    add_config(parser)
    parser.add_argument("--create", action="store_true", help="create missing topics with the right settings")
    parser.add_argument(
        "--partitions",
        type=_positive,
        metavar="N",
        help="with --create, create a missing input topic too, with N partitions",
    )
    parser.set_defaults(run=run)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("expected a whole number, at least 1")
    return int(text)


def topic_settings(config: Config) -> dict[str, dict[str, str]]:
    """Settings of the topics that the worker writes, by name. Replication is left to the broker's defaults.

    Outputs get the broker's time: they carry event times in their values, and retention by the times of a replayed
    backlog would delete them at once. The state topic is compacted, in segments that are small and short enough for the
    cleaner to get at them: a restore reads the topic as it is, not as it would be once compacted.

    Raises:
        ConfigError: the models cannot be built, so that the size of a snapshot is not known.
    """
    now = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}
    largest = max(config.output.max_dead_letter_bytes + _ENVELOPE_BYTES, _BROKERS_LARGEST_BYTES)
    return {
        config.output.estimates: now,
        config.output.alarms: {**now, "retention.ms": str(90 * _DAY_MS)},
        config.output.dead_letters: {
            **now,
            "retention.ms": str(14 * _DAY_MS),
            "max.message.bytes": str(largest),
        },
        config.state.topic: _state_settings(config),
    }


def _state_settings(config: Config) -> dict[str, str]:
    from kstream_worker import app
    from kstream_worker.state.checks import largest_snapshot_bytes

    largest = largest_snapshot_bytes(app.build_bank(config).bytes_per_key)
    return {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",  # else a host whose clock is fast could not write state
        "segment.bytes": str(64 * 2**20),
        "segment.ms": str(3_600_000),
        "min.cleanable.dirty.ratio": "0.3",
        "max.message.bytes": str(max(largest, _BROKERS_LARGEST_BYTES)),
    }


def run(args: argparse.Namespace) -> int:
    """Print a line per topic; 78 when one is missing and stays so."""
    config = load_config(args)
    quiet_logs(args, config)
    if config.bus.kind != "kafka":
        raise ConfigError("the command topics needs `bus.kind` kafka; with files the worker makes its own outputs")

    from kstream_worker import app

    cluster = app.build_bus(config).cluster()
    try:
        if args.create:
            _create(cluster, config, args.partitions)
        return _list(cluster, config)
    finally:
        cluster.close()


def _create(cluster: Cluster, config: Config, partitions: int | None) -> None:
    topic = config.input.topic
    present = cluster.partition_count(topic)
    count = present or partitions
    if present and partitions and present != partitions:
        print(f"{topic} exists with {present} partitions: --partitions {partitions} changes nothing", file=sys.stderr)
    if count is None:
        raise ConfigError(
            f"the input topic {topic} does not exist, so the number of partitions is not known: create it, "
            "or give --partitions N to create it here"
        )
    settings: Mapping[str, dict[str, str]] = {topic: {}, **topic_settings(config)}
    missing = {name: count for name in settings if cluster.partition_count(name) is None}
    if missing:
        for name in cluster.create_topics(missing, {name: settings[name] for name in missing}):
            print(f"created {name} with {count} partitions", file=sys.stderr)


def _list(cluster: Cluster, config: Config) -> int:
    roles = {
        config.input.topic: "input",
        config.output.estimates: "estimates",
        config.output.alarms: "alarms",
        config.output.dead_letters: "dead letters",
        config.state.topic: "state",
    }
    settings = topic_settings(config)
    width = max(map(len, roles))
    code = EXIT_OK
    for topic, role in roles.items():
        count = cluster.partition_count(topic)
        state = "missing" if count is None else "1 partition" if count == 1 else f"{count} partitions"
        wanted = settings.get(topic, {})
        shown = _settings(wanted, wanted if count is None else cluster.topic_config(topic))
        print(f"{topic:<{width}}  {role:<12}  {state:<14}  {shown}".rstrip())
        code = EXIT_CONFIG if count is None else code
    return code


def _settings(wanted: Mapping[str, str], present: Mapping[str, str]) -> str:
    """The settings that matter as they are, and where that differs, what `--create` would have set."""
    if wanted and not present:
        return "settings not readable (needs DESCRIBE_CONFIGS)"
    return " ".join(
        f"{name}={present[name]}" + ("" if present[name] == value else f" (--create sets {value})")
        for name, value in wanted.items()
        if name in present
    )
