"""What `kstream-worker state` does, once it is known what: adapters in, lines out."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from kstream_worker import __version__, app
from kstream_worker.cli.options import as_a_guest, load_config, quiet_logs
from kstream_worker.cli.progress import Progress
from kstream_worker.cli.state import key_of
from kstream_worker.config import Config
from kstream_worker.errors import EXIT_FATAL, EXIT_OK, ConfigError, Fatal
from kstream_worker.state_tools import archive, listing, show
from kstream_worker.state_tools.export import export_state
from kstream_worker.state_tools.importing import Importer, ImportSettings, check_fits, plan, same_log
from kstream_worker.state_tools.names import key_name, time_name
from kstream_worker.state_tools.place import Place, persist
from kstream_worker.state_tools.reading import StateReader
from kstream_worker.state_tools.reset import ResetSettings, locate, reset_key
from kstream_worker.state_tools.seat import taken
from kstream_worker.state_tools.survey import Survey, inspector, surveys
from kstream_worker.state_tools.verify import verify


@dataclass(frozen=True, slots=True)
class _Session:
    config: Config
    place: Place
    report: Progress


@contextmanager
def _session(args: argparse.Namespace) -> Iterator[_Session]:
    config = load_config(args)
    quiet_logs(args, config)
    if config.bus.kind == "files" and config.bus.files.output_dir == "-":
        raise ConfigError("with standard output (`bus.files.output_dir`: -) no state is kept")
    bus = app.build_bus(as_a_guest(config))
    with closing(persist(bus.cluster)) as cluster:
        yield _Session(config, Place(bus, cluster, config.input.topic, config.state.topic), Progress())


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def list_state(args: argparse.Namespace) -> int:
    """Partitions, and with `--keys` keys."""
    with _session(args) as session:
        place = session.place
        inspect = inspector(app.build_bank(session.config)) if args.keys else None
        with closing(StateReader(place, session.report.reading)) as reader:
            found = surveys(reader, place.chosen(args.partition), inspect)
            if args.json:
                _print_rows(found, keys=args.keys)
            elif args.keys:
                for one in found:  # a table for each: all keys of all partitions may not fit in memory
                    _print_table(listing.HEADINGS, [listing.partition_cells(one)])
                    _print_table(listing.KEY_HEADINGS, listing.key_cells(one))
            else:
                _print_table(listing.HEADINGS, map(listing.partition_cells, found))
    return EXIT_OK


def _print_rows(found: Iterable[Survey], *, keys: bool) -> None:
    for one in found:
        print(json.dumps(listing.partition_row(one)))
        for row in listing.key_rows(one) if keys else ():
            print(json.dumps(row))


def _print_table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    for line in listing.table(headings, rows):
        print(line)


def show_key(args: argparse.Namespace) -> int:
    """One key; exit 1 where it is not there."""
    key = key_of(args)
    with _session(args) as session:
        config, place = session.config, session.place
        bank, (x_dims, dims) = app.build_bank(config), app.sample_dims(config)
        count = 0
        with closing(StateReader(place, session.report.reading)) as reader:
            for found in show.find(reader, key, place.chosen(args.partition)):
                count += 1
                said = {"key": key_name(key)} | show.describe(found, bank, dims, x_dims)
                print(json.dumps(said) if args.json else _lines(said))
    if not count:
        raise Fatal(
            f"there is no snapshot of {key_name(key)}. A key gets its first one about state.interval after its first "
            "record, or when its worker stops"
        )
    return EXIT_OK


def _lines(said: Mapping[str, object]) -> str:
    width = max(map(len, said))
    shown = {
        name: time_name(value) if name == "seen_ms" and isinstance(value, int) else value
        for name, value in said.items()
    }
    return "\n".join(f"{name:<{width}}  {'-' if value is None else value}" for name, value in shown.items())


def export(args: argparse.Namespace) -> int:
    """All state into a file."""
    with _session(args) as session:
        config, place = session.config, session.place
        with closing(place.persist(place.bus.group)) as group:
            members = place.persist(group.members)
        if members:
            _say(f"the group has {len(members)} members: each partition is exported as of its last commit that is read")
        about = archive.About(
            format=archive.FORMAT,
            release=__version__,
            app_id=config.app.id,
            topic=place.topic,
            state_topic=place.state_topic,
            cluster_id=place.persist(place.cluster.cluster_id),
            topic_id=place.persist(lambda: place.cluster.topic_id(place.topic)),
            partitions=len(place.partitions()),
        )
        with closing(StateReader(place, session.report.reading)) as reader:
            keys = export_state(reader, about, args.file, _say)
    print(f"{args.file}: {keys} keys of {about.partitions} partitions")
    return EXIT_OK


def import_(args: argparse.Namespace) -> int:
    """State of a file into an empty place."""
    contents = archive.check(args.file)
    with _session(args) as session:
        config, place = session.config, session.place
        start = config.input.start_ms()
        settings = ImportSettings(
            identity=app.state_identity(config),
            start=config.input.start if start is None else start,
            format=config.state.format,
            same_offsets=args.same_offsets,
            force=args.force,
            now_ms=_now_ms,
        )
        check_fits(place, contents, settings.identity)
        same_log(place, contents, settings.same_offsets)
        with (
            taken(place, sorted(contents.headers)) as seat,
            closing(StateReader(place, session.report.reading, seat.keep)) as reader,
        ):
            target = plan(place, seat, reader, contents, settings)
            keys = Importer(place, seat, target, settings, session.report.writing, _say).write(args.file)
    print(f"{keys} keys of {len(contents.headers)} partitions imported: start the workers")
    return EXIT_OK


def reset(args: argparse.Namespace) -> int:
    """One key starts afresh."""
    key = key_of(args)
    with _session(args) as session:
        config, place = session.config, session.place
        bank = app.build_bank(config)
        with closing(StateReader(place, session.report.reading)) as reader:
            number = locate(reader, place, key, args.partition)
        settings = ResetSettings(
            identity=app.state_identity(config),
            format=config.state.format,
            bank=bank,
            encoder=app.build_encoder(config, place.cluster, bank),
            now_ms=_now_ms,
        )
        with (
            taken(place, [number]) as seat,
            closing(StateReader(place, session.report.reading, seat.keep)) as reader,
        ):
            cleared = reset_key(place, seat, reader, key, number, settings)
    print(f"{key_name(key)} of partition {number} starts afresh" + (", its alarm is cleared" if cleared else ""))
    return EXIT_OK


def verify_state(args: argparse.Namespace) -> int:
    """All that is wrong; 1 when anything is."""
    with _session(args) as session:
        config, place = session.config, session.place
        with (
            closing(place.persist(place.bus.group)) as group,
            closing(StateReader(place, session.report.reading)) as reader,
        ):
            verdict = verify(place, reader, group, app.build_bank(config), app.state_identity(config))
    for note in verdict.notes:
        _say(f"note: {note}")
    if not verdict.problems:
        print(f"ok: {verdict.keys} keys")
        return EXIT_OK
    for problem in verdict.problems:
        print(f"- {args.scrub(problem)}")
    _say(f"{len(verdict.problems)} problem{'s' * (len(verdict.problems) > 1)} found")
    return EXIT_FATAL


ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "list": list_state,
    "show": show_key,
    "export": export,
    "import": import_,
    "reset": reset,
    "verify": verify_state,
}
