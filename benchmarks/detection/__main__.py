"""Detection on labelled series: ours at one setting, peers, controls, published figures.

    python -m benchmarks.detection [--ours] [--data FOLDER] [--output FOLDER]

Data: `KSTREAM_DATA`, else `../shared/data`; what is absent is left out. Peers that are not installed are left out
with a line (`pip install river ruptures changepoynt`). Writes tables and pictures into the output folder; the last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.detection import pictures, tables
from benchmarks.detection.cache import Cache
from benchmarks.detection.run import peers, run
from benchmarks.detection.series import data_folder
from benchmarks.detection.tasks import load


def main(arguments: list[str]) -> int:
    """Run, print, draw."""
    options = _options(arguments)
    boards = options.data / "leaderboards.json"
    if not boards.is_file():
        print(f"no {boards}: set KSTREAM_DATA to the folder of the local data, or give --data", file=sys.stderr)
        return 2
    started = time.perf_counter()
    others, missing = ([], []) if options.ours else peers()
    tasks = load(options.data, json.loads(boards.read_text()))
    results = run(tasks, others, Cache(options.output / "cache"))
    text = tables.markdown(results)
    (options.output / "tables.md").write_text(text + "\n")
    pictures.draw(options.output, results)
    print("", text, "", *missing, f"{time.perf_counter() - started:.0f} s; pictures in {options.output}", sep="\n")
    print(json.dumps(tables.summary(results)))
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.detection", description="Detection on labelled series.")
    parser.add_argument("--ours", action="store_true", help="leave the peers out")
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of the local data")
    parser.add_argument("--output", type=Path, default=Path("out/bench-detection"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
