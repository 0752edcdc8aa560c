"""What `kstream-worker calibrate` does: history in, report, pictures and a proposed configuration out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec

from kstream_worker import app
from kstream_worker.calibration import plots, report, tables
from kstream_worker.calibration.history import Collector, KeyHistory, Limits
from kstream_worker.calibration.propose import Proposal, propose
from kstream_worker.calibration.reading import read_history
from kstream_worker.calibration.runs import Settings
from kstream_worker.calibration.settings_file import settings_file
from kstream_worker.calibration.study import Input, Study, study
from kstream_worker.cli.options import as_a_guest, load_config, quiet_logs
from kstream_worker.cli.progress import Progress
from kstream_worker.config import Config
from kstream_worker.config.kinds import RATIO
from kstream_worker.errors import ConfigError, Fatal
from kstream_worker.ports import Bank
from kstream_worker.state_tools.names import time_name
from kstream_worker.state_tools.place import Place, persist

_NO_FLEET = (
    "fleet_keys and fleet_false_alarms_per_day are left out: arl states the same for all keys together, by the rates "
    "of this history."
)


def calibrate(args: argparse.Namespace) -> None:
    """All steps.

    Raises:
        ConfigError: the configuration or the folder is wrong.
        Fatal: there is no history, or the bus does not answer.
    """
    config = load_config(args)
    quiet_logs(args, config)
    if config.model.kind != RATIO:
        raise ConfigError(
            f"calibrate measures the detectors of `model.kind` ratio, not those of {config.model.kind}, whose alarms "
            "depend on what the model learns; run it on history with `bus.kind` files, and count its alarms"
        )
    folder = _make_folder(args.output)
    progress = Progress()
    found, histories = _read(config, args, progress)
    measured, runs = study(
        found,
        app.binding_of(config).names,
        _settings(config),
        histories,
        lambda settings: _bank(config, settings),
        config.model.seed,
        progress.doing,
    )
    proposal = propose(measured, runs, args.false_alarms_per_day, timed=_timed(config))
    if config.detector.fleet_keys is not None:
        proposal = replace(proposal, notes=(*proposal.notes, _NO_FLEET))
    written = _write(folder, config, measured, proposal)  # first: whoever reads the table may go away
    print("\n".join(tables.lines(measured, proposal)))
    print(f"\nWritten to {folder}: {', '.join(written)}")


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {folder} cannot be made: {error.strerror}; name another folder") from error
    return folder


def _read(config: Config, args: argparse.Namespace, progress: Progress) -> tuple[Input, list[KeyHistory]]:
    dims, two_sided = len(app.binding_of(config).names), config.pairing.mode == "explicit"
    limits = Limits.within(
        args.keys,
        dims,
        two_sided=two_sided,
        from_ms=args.since,
        until_ms=args.until,
        ttl_ms=round(1000 * config.state.ttl),
    )
    collector = Collector(limits, dims, two_sided=two_sided, seed=config.model.seed)
    bus = app.build_bus(_without_outputs(as_a_guest(config), args.output))
    with closing(persist(bus.cluster)) as cluster:
        place = Place(bus, cluster, config.input.topic, config.state.topic)
        read = read_history(
            place, collector, lambda: app.build_decoder(config), progress.reading, from_record_ms=_from(config, args)
        )
    if not collector.taken:
        raise Fatal(_nothing(config, args, read.records, dict(read.rejected)))
    return Input.of(read, collector, limits), collector.histories()


def _without_outputs(config: Config, folder: Path) -> Config:
    """Files: no database of a worker, so that whatever files are named, they are the whole input."""
    files = msgspec.structs.replace(config.bus.files, output_dir=str(folder / "never-made"))
    return msgspec.structs.replace(config, bus=msgspec.structs.replace(config.bus, files=files))


def _from(config: Config, args: argparse.Namespace) -> int | None:
    """A record time before which no record can have an event time that is wanted; files have no record times."""
    if args.since is None or config.bus.kind == "files":
        return None
    since: int = args.since
    return max(0, since - round(1000 * config.state.max_future_skew))


def _nothing(config: Config, args: argparse.Namespace, records: int, rejected: dict[str, int]) -> str:
    where = config.input.topic if config.bus.kind == "kafka" else ", ".join(config.bus.files.inputs)
    if not records:
        return f"{where} holds no records: nothing to calibrate on"
    if sum(rejected.values()) == records:
        return f"all {records} records of {where} were refused ({rejected}): correct the binding (input.*)"
    limits = [f"{name} {time_name(at)}" for name, at in (("from", args.since), ("until", args.until)) if at is not None]
    return f"none of the {records} records of {where} has an event time {' '.join(limits)}"


def _settings(config: Config) -> Settings:
    detector = config.detector
    return Settings(detector.arl, detector.on_alarm, detector.dead_time)


def _bank(config: Config, settings: Settings) -> Bank:
    config = _without_fleet(config)  # whatever a fleet shares, what is measured is run lengths in samples
    detector = msgspec.structs.replace(
        config.detector,
        arl=settings.arl,
        on_alarm=settings.on_alarm,
        dead_time=settings.dead_time_s,
    )
    return app.build_bank(msgspec.structs.replace(config, detector=detector))


def _without_fleet(config: Config) -> Config:
    detector = msgspec.structs.replace(config.detector, fleet_keys=None, fleet_false_alarms_per_day=None)
    return msgspec.structs.replace(config, detector=detector)


def _timed(config: Config) -> bool:
    """Whether a dead time may be configured."""
    return config.bus.kind == "kafka" or bool(config.input.timestamp)


def _write(folder: Path, config: Config, measured: Study, proposal: Proposal) -> list[str]:
    """Names of the files."""
    document = json.dumps(report.document(measured, proposal, config.app.id), allow_nan=False, indent=1)
    heading = (
        f"Proposed by `kstream-worker calibrate` from {measured.input.samples:,} samples, "
        f"{time_name(measured.input.first_ms)} to {time_name(measured.input.last_ms)}: the configuration that was "
        "given, with other settings in section `detector`. Read the reasons before you run it."
    )
    files = {
        "calibration.json": document + "\n",
        "proposed.toml": settings_file(_without_fleet(config), proposal, heading),
    }
    try:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        pictures = _draw(folder, measured)
    except OSError as error:
        raise Fatal(
            f"--output {folder} cannot be written: {error.strerror}; free space or correct its rights"
        ) from error
    return [*files, *(path.name for path in pictures)]


def _draw(folder: Path, measured: Study) -> Sequence[Path]:
    try:
        return plots.draw(folder, measured)
    except ModuleNotFoundError:
        print("no pictures: they need matplotlib (pip install 'kstream-worker[demo]')", file=sys.stderr)
        return ()
