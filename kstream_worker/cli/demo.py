"""`kstream-worker demo`: real telemetry replayed through the worker; a table of alarms and a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kstream_worker.errors import EXIT_OK


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("demo", help="replay real telemetry through the worker and show its alarms")
    parser.add_argument("--kafka", action="store_true", help="through a real Kafka, started on this machine")
    parser.add_argument("--output", type=Path, default=Path("out/demo"), help="folder for outputs (default out/demo)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay, print the table, draw the picture."""
    from kstream_worker.demo import picture, replay, report
    from kstream_worker.demo.data import load_tracks

    folder = replay.prepare_folder(args.output)
    tracks = load_tracks()
    print(f"Replaying server telemetry (Numenta Anomaly Benchmark):\n{report.story(tracks)}\n", flush=True)
    if args.kafka:
        estimates, alarms = replay.replay_kafka(tracks, folder, _say)
    else:
        estimates, alarms = replay.replay_files(tracks, folder)
    print(f"\n{report.table(report.HEADINGS, report.alarm_rows(alarms))}\n")
    picture.draw(folder / "drift.png", tracks, estimates, alarms)
    print(f"{len(estimates):,} estimates, {len(alarms)} alarm transitions. Picture: {folder / 'drift.png'}")
    return EXIT_OK


def _say(alarm: dict[str, Any]) -> None:
    from kstream_worker.demo.report import clock

    print(f"\r{clock(alarm['event_time'])}  {alarm['key']:9} {alarm['transition']} ({alarm['reason']})", flush=True)
