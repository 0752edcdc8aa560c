"""`kstream-worker run`: the worker itself."""

from __future__ import annotations

import argparse
from typing import Any

from kstream_worker.cli.options import add_config, load_config


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("run", help="run a worker until it is stopped or its input ends")
    add_config(parser)
    parser.add_argument(
        "--leave",
        action="store_true",
        help="at the end tell the group at once, also as a static member (group_instance_id): for scaling down",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a worker; SIGTERM and SIGINT finish, commit and leave."""
    config = load_config(args)

    from kstream_worker import app

    return app.run(config, leave=args.leave)
