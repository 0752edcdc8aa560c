"""`kstream-worker calibrate`: what the configured detector does on history, and settings that follow from it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kstream_worker.cli.options import add_config
from kstream_worker.errors import EXIT_OK

_EPOCH = datetime.fromtimestamp(0, UTC)


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "calibrate",
        help="measure alarms and delays on history, and propose settings",
        description="Reads history from the input topic or files, as `run` would, and says how often the configured "
        "detector raises alarms on it, how fast it finds changes that are put in, and which settings follow. Joins no "
        "group, writes nothing to the bus, touches no state: it needs READ on the input topic. docs/calibrate.md says "
        "what the figures mean.",
    )
    add_config(parser)
    parser.add_argument("--from", type=_moment, metavar="TIME", dest="since", help="event time, ISO 8601 with a zone")
    parser.add_argument("--until", type=_moment, metavar="TIME", help="event time, not included")
    parser.add_argument(
        "--keys",
        type=_count,
        default=20,
        metavar="N",
        help="look at so many keys, drawn at random where there are more (default 20); of each the newest 100,000 "
        "samples at most, and 512 MiB of samples in all",
    )
    parser.add_argument(
        "--false-alarms-per-day",
        type=_positive,
        default=1.0,
        metavar="X",
        help="wanted at most, of all keys together (default 1)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("out/calibration"),
        metavar="FOLDER",
        help="for calibration.json, proposed.toml and pictures (default out/calibration)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print, write."""
    from kstream_worker.cli import calibrate_steps

    calibrate_steps.calibrate(args)
    return EXIT_OK


def _moment(text: str) -> int:
    """Milliseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("expected a time in ISO 8601, such as 2026-01-31T08:00:00Z") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError("the time has no zone; end it with Z or an offset such as +02:00")
    return round((moment - _EPOCH).total_seconds() * 1000)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError("expected a whole number from 1 to 10000")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError("expected a number above 0")
    return value
