"""`kstream-worker version`."""

from __future__ import annotations

import argparse
import platform
from typing import Any

from kstream_worker import __version__
from kstream_worker.cli.options import add_debug
from kstream_worker.errors import EXIT_OK


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("version", help="print the version")
    add_debug(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the version."""
    del args
    print(f"kstream-worker {__version__} (Python {platform.python_version()})")
    return EXIT_OK
