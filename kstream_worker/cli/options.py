"""Flags that several commands share, and the configuration that they lead to."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstream_worker.config import Config

_NAMED = {
    "--bootstrap-servers": ("bus.kafka.bootstrap_servers", "HOST:PORT,..."),
    "--input-topic": ("input.topic", "TOPIC"),
    "--telemetry-port": ("telemetry.port", "PORT"),
    "--log-level": ("telemetry.log_level", "LEVEL"),
    "--log-format": ("telemetry.log_format", "FORMAT"),
}


def add_debug(parser: argparse.ArgumentParser) -> None:
    """Add `--debug`."""
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the flags that make a configuration."""
    parser.add_argument("-c", "--config", metavar="FILE", help="configuration, .toml, .yaml or .yml")
    parser.add_argument(
        "--set",
        metavar="SECTION.KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="one key; goes before environment (KSTREAM_WORKER__SECTION__KEY) and file; may be repeated",
    )
    for flag, (path, metavar) in _NAMED.items():
        parser.add_argument(flag, metavar=metavar, dest=path, help=f"the same as --set {path}={metavar}")
    add_debug(parser)


def load_config(args: argparse.Namespace) -> Config:
    """The configuration that the flags, the environment and the file give.

    Raises:
        ConfigError: with all problems found.
    """
    from kstream_worker.config import load
    from kstream_worker.telemetry.logs import Scrubber

    named = [(flag, path, getattr(args, path)) for flag, (path, _) in _NAMED.items() if getattr(args, path) is not None]
    config = load(args.config, environment=os.environ, settings=args.settings, flags=named)
    args.scrub = Scrubber(config.secrets()).text
    return config


def quiet_logs(args: argparse.Namespace, config: Config) -> None:
    """For commands that answer and end: what matters is in the answer; `--debug` shows what the client does."""
    from kstream_worker.telemetry import logs

    logs.configure("debug" if args.debug else "critical", "console", config.secrets())


def as_a_guest(config: Config) -> Config:
    """The configuration under no static name: it would put the worker out that has it."""
    import msgspec

    kafka = msgspec.structs.replace(config.bus.kafka, group_instance_id=None)
    return msgspec.structs.replace(config, bus=msgspec.structs.replace(config.bus, kafka=kafka))
