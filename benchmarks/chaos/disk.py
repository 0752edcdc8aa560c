"""Full disks: the worker's own (files), and a broker's. It ends or waits with a clear message, and loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.chaos.arena import BROKER, Arena
from benchmarks.chaos.stage import Stage, Verdict
from benchmarks.chaos.traffic import Shape
from benchmarks.chaos.workers import events, last_words
from kstream_worker.bus.broker import LocalKafka

_TICKS = 150
_BROKER_MB = 40


def tmpfs_possible() -> bool:
    """Whether this process may mount small file systems."""
    return sys.platform == "linux" and os.geteuid() == 0


@contextlib.contextmanager
def small_disk(place: Path, size_kb: int) -> Iterator[Path]:
    """A file system of its own in memory, of that size."""
    place.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S607


def grow(place: Path, size_kb: int) -> None:
    """Give a small disk another size."""
    _mount("-o", f"remount,size={size_kb}k", str(place))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)  # noqa: S607


def files(folder: Path) -> Verdict:
    """The folder of the outputs is full, again and again; each start finds a little more room."""
    verdict = Verdict("full disk, files")
    source = folder / "in.jsonl"
    _write_lines(source)
    whole = folder / "whole"
    code, _ = _run_files(folder, source, whole)
    verdict.check(code == 0, "undisturbed: ends with 0")
    with contextlib.ExitStack() as stack:
        small = folder / "small"
        size_kb, step_kb = 300, 700
        limited = tmpfs_possible()
        if limited:
            stack.enter_context(small_disk(small, size_kb))
        ends = 0
        for _ in range(100):
            code, why = _run_files(folder, source, small, None if limited else size_kb)
            if code == 0:
                break
            ends += 1
            clear = code == 1 and re.search(r"No space left|File too large|disk is full", why) is not None
            if not clear or ends == 1:
                verdict.check(clear, f"ends with {code} and says: {why}")
            size_kb += step_kb
            if limited:
                grow(small, size_kb)
        verdict.check(code == 0 and ends > 1, f"ends {ends} times for want of room, then gets to the end")
        same = all(_lines(small / file.name) == _lines(file) for file in sorted(whole.glob("*.jsonl")))
        verdict.check(same, "outputs equal those of a run that nothing disturbed")
    return verdict


def _write_lines(file: Path) -> None:
    shape = Shape(mode="stream", steady=40, moody=10)
    with file.open("w", encoding="utf-8") as out:
        ticks = shape.ticks()
        for _ in range(_TICKS * 2):
            for sent in next(ticks):
                value = json.loads(sent.value) if sent.value and sent.value.startswith(b'{"ts') else None
                if value is not None:
                    out.write(json.dumps({"key": sent.key.decode(errors="replace"), **value}) + "\n")


def _run_files(folder: Path, source: Path, output: Path, limit_kb: int | None = None) -> tuple[int, str]:
    """One `run` over the files; exit code and the end of what it said."""
    config = folder / "files.toml"
    config.write_text(
        f'app.id = "disk"\n[bus]\nkind = "files"\n[bus.files]\ninputs = ["{source}"]\n'
        '[input]\ny = "y"\ndims = 2\ntimestamp = "ts"\nkey = "key"\n'
        "[detector]\narl = 5000\nwarmup = 150\n[commit]\ninterval = 0.2\nmax_bytes = 65536\n"
        "[output]\nmax_dead_letter_bytes = 32768\n[telemetry]\nport = 0\n[gate]\nmax_consecutive_rejects = 100000\n"
    )
    run = [sys.executable, "-m", "kstream_worker", "run", "-c", str(config), "--set", f"bus.files.output_dir={output}"]
    limited = ["prlimit", f"--fsize={limit_kb * 1024}", *run] if limit_kb else run
    done = subprocess.run(limited, capture_output=True, text=True, timeout=300, check=False)
    said = folder / "files.log"
    said.write_text(done.stderr, encoding="utf-8")
    return done.returncode, last_words(said)


def _lines(file: Path) -> list[str]:
    """Lines without what the wall clock decides."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [re.sub(r'"lag_s":[^,}]*', "", line) for line in lines]


def broker(folder: Path, client: str) -> Verdict:
    """The only broker's disk is full: it ends; the worker waits and says so; with room again nothing is lost."""
    verdict = Verdict(f"{client}: full disk of the broker")
    if not tmpfs_possible():
        verdict.good = None
        verdict.said.append("not shown: small file systems can be mounted by root alone")
        return verdict
    with small_disk(folder / "broker", _BROKER_MB * 1024) as place:
        settings = {**BROKER, "log.dirs": str(place / "logs"), "default.replication.factor": "1"}
        with LocalKafka(brokers=1, settings=settings) as kafka:
            shape = Shape(mode="explicit", partitions=2, steady=40, moody=10)
            stage = Stage(Arena(kafka, folder, "full", client, shape, replicas=1))
            try:
                _fill(stage, place, verdict)
            finally:
                stage.close()
    return verdict


def _fill(stage: Stage, place: Path, verdict: Verdict) -> None:
    stage.produce(_TICKS)
    stage.start()
    verdict.check(stage.caught_up(), "works")
    filler = place / "filler"
    with contextlib.suppress(OSError), filler.open("wb") as out:
        while True:
            out.write(bytes(65536))
            out.flush()
    died = _produce_until_death(stage)
    verdict.check(died, "the broker ends for want of room")
    time.sleep(15.0)
    assert stage.process is not None
    waits = stage.process.poll() is None
    said = [str(e.get("why")) for e in events(stage.log) if e.get("level") in ("warning", "critical")]
    verdict.check(bool(said), f"the worker {'waits' if waits else 'has ended'} and says: {said[-1] if said else ''}")
    filler.unlink()
    grow(place, 16 * _BROKER_MB * 1024)
    stage.arena.kafka.restart(0)
    if not waits:
        stage.start()
    stage.produce(_TICKS)
    verdict.check(stage.caught_up(), "with room again it goes on")
    verdict.check(stage.terminate() == 0, "ends with 0 at SIGTERM")
    tally = stage.compare(("estimates", "alarms", "dead-letters"), state=True)
    verdict.check(tally.clean and tally.outputs > 0, f"outputs and state equal the oracle's: {tally}")


def _produce_until_death(stage: Stage) -> bool:
    """Records until the broker's disk is full; False when it never was."""
    for _ in range(20):
        with contextlib.suppress(RuntimeError):
            stage.produce(20, patience_s=8.0)
        if stage.arena.kafka.dead():
            return True
    return False
