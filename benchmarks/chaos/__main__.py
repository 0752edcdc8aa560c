"""`python -m benchmarks.chaos`: chaos on three real brokers, and scenarios with a verdict each."""

from __future__ import annotations

import argparse
import itertools
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.chaos import bounce, disk, lost_input, lost_state, twins
from benchmarks.chaos.arena import CLIENTS, Arena, three_brokers
from benchmarks.chaos.faults import plan
from benchmarks.chaos.report import line, table, verdict_lines
from benchmarks.chaos.run import Chaos, Report
from benchmarks.chaos.stage import Verdict
from benchmarks.chaos.traffic import Shape
from kstream_worker.bus.broker import LocalKafka
from kstream_worker.telemetry import logs

WHAT = ("all", "run", "scenarios", "bounce", "twins", "input", "state", "disk")


def main() -> int:
    args = _arguments()
    logs.configure("error", "console")  # of the oracle
    clients = CLIENTS if args.client == "both" else (args.client,)
    reports: list[Report] = []
    verdicts: list[Verdict] = []
    for client in clients:
        if args.what in ("all", "run"):
            reports += _chaos(args, client)
        if args.what != "run":
            verdicts += _scenarios(args, client)
    if args.what in ("all", "scenarios", "disk"):
        verdicts += _shown(disk.files(folder) for folder in _folders(1))
    print(line(reports, verdicts))
    return 0 if all(r.good for r in reports) and all(v.good is not False for v in verdicts) else 1


def _chaos(args: argparse.Namespace, client: str) -> Iterator[Report]:
    modes = ("stream", "explicit") if args.mode == "both" else (args.mode,)
    for n, mode in enumerate(modes):
        share = args.faults // len(modes) + (args.faults % len(modes) if n == 0 else 0)
        seed = args.seed + n
        with three_brokers() as kafka, tempfile.TemporaryDirectory(prefix="kstream-chaos-") as folder:
            arena = _arena(kafka, Path(folder), client, Shape(mode=mode, seed=seed))
            faults = plan(seed, share, args.workers)
            budget_s = 60.0 * args.minutes / len(modes)
            chaos = Chaos(arena, faults, seed=seed, workers=args.workers, rate=args.rate, budget_s=budget_s)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, chaos.enough)
            report = chaos.run()
            print(table(report), flush=True)
            if args.keep and not report.good:
                _keep(arena, Path(args.keep))
            yield report


def _scenarios(args: argparse.Namespace, client: str) -> Iterator[Verdict]:
    with three_brokers() as kafka:
        small = Shape(mode="explicit", partitions=2, steady=40, moody=10, seed=args.seed)

        def make(folder: Path, shape: Shape = small) -> Callable[[str], Arena]:
            return lambda state: _arena(kafka, folder, client, shape, state)

        scenarios: dict[str, list[Callable[[Path], Verdict]]] = {
            "bounce": [lambda f: bounce.bounce_and_loss(_arena(kafka, f, client, Shape(seed=args.seed), patient=True))],
            "twins": [lambda f: twins.twins(make(f, Shape(seed=args.seed, partitions=4))(""))],
            "input": [
                lambda f: lost_input.passes_replay(make(f), "trust_state"),
                lambda f: lost_input.passes_replay(make(f), "discard_state"),
                lambda f: lost_input.passes_position(make(f), "trust_state"),
                lambda f: lost_input.passes_position(make(f), "discard_state"),
            ],
            "state": [
                lambda f: lost_state.truncated(make(f)),
                lambda f: lost_state.cut(make(f)),
                lambda f: lost_state.deleted(make(f)),
            ],
        }
        chosen = scenarios.values() if args.what in ("all", "scenarios") else [scenarios.get(args.what, [])]
        shows = list(itertools.chain.from_iterable(chosen))
        yield from _shown(show(folder) for show, folder in zip(shows, _folders(len(shows)), strict=True))
    if args.what in ("all", "scenarios", "disk"):
        yield from _shown(disk.broker(folder, client) for folder in _folders(1))


def _shown(verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
    for verdict in verdicts:
        print("\n".join(verdict_lines(verdict)), flush=True)
        yield verdict


def _folders(count: int) -> Iterator[Path]:
    """That many temporary folders, one after the other."""
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix="kstream-chaos-") as folder:
            yield Path(folder)


def _arena(
    kafka: LocalKafka, folder: Path, client: str, shape: Shape, state: str = "interval = 10\n", *, patient: bool = False
) -> Arena:
    return Arena(kafka, folder, f"chaos-{secrets.token_hex(3)}", client, shape, state, patient=patient)


def _keep(arena: Arena, place: Path) -> None:
    """Copies of configuration and logs, for whoever looks into a failure."""
    place.mkdir(parents=True, exist_ok=True)
    for file in arena.folder.iterdir():
        if file.is_file():
            (place / f"{arena.app_id}-{file.name}").write_bytes(file.read_bytes())
    print(f"logs are in {place}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("what", nargs="?", choices=WHAT, default="all", help="(default %(default)s)")
    parser.add_argument("--client", choices=(*CLIENTS, "both"), default="both")
    parser.add_argument("--mode", choices=("stream", "explicit", "both"), default="both")
    parser.add_argument("--faults", type=int, default=200, help="of run, per client (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, choices=(2, 3, 4), default=3)
    parser.add_argument("--rate", type=int, default=600, help="records a second (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=70.0, help="most time for the faults of one client")
    parser.add_argument("--keep", metavar="FOLDER", help="copy the logs of a run there that was not good")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
