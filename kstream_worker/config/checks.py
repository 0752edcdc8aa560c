"""Contradictions between keys, each refused with the reason and the remedy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from kstream_worker.config.commissioning import ReferenceConfig
from kstream_worker.config.detector import DetectorConfig
from kstream_worker.config.fields import fields_of
from kstream_worker.config.kinds import BUILT_IN, RATIO, Facts, facts
from kstream_worker.config.model import ModelConfig
from kstream_worker.config.pairing import PairingConfig
from kstream_worker.config.schema import Config
from kstream_worker.config.units import format_duration, parse_duration

MIN_COMMIT_INTERVAL_S = 0.2
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


def _is_id(app_id: str) -> bool:
    return _ID.fullmatch(app_id) is not None and app_id not in (".", "..")


def _app(config: Config) -> Iterator[str]:
    if not _is_id(config.app.id):
        yield "`app.id`: expected 1 to 200 letters, digits, dots, underscores or hyphens, as in topic names"


def _bus(config: Config) -> Iterator[str]:
    if config.bus.kind == "kafka":
        if not config.bus.kafka.bootstrap_servers:
            yield "`bus.kafka.bootstrap_servers` is missing: name the brokers, or set `bus.kind` to files"
        if not config.input.topic:
            yield "`input.topic` is missing: name the topic to read"
        if config.bus.kafka.group_instance_id == "":
            yield "`bus.kafka.group_instance_id` is empty: give each process a name of its own, or leave it out"
    else:
        yield from _files(config)


def _files(config: Config) -> Iterator[str]:
    files = config.bus.files
    if not files.inputs:
        yield "`bus.files.inputs` is missing: name files, or - for standard input"
    if "-" in files.inputs and len(files.inputs) > 1:
        yield "`bus.files.inputs` has - (standard input) beside files: take one or the other"
    if not files.output_dir:
        yield "`bus.files.output_dir` is empty: name a folder, or - for standard output"
    if config.input.format != "json":
        yield "`input.format` must be json with `bus.kind` files: lines of text hold JSON or CSV, which arrives as JSON"
    if files.key_column and files.format != "csv":
        yield "`bus.files.key_column` needs `bus.files.format` csv; for JSON Lines use `input.key`"


def _topics(config: Config) -> Iterator[str]:
    outputs = {
        "output.estimates": config.output.estimates,
        "output.alarms": config.output.alarms,
        "output.dead_letters": config.output.dead_letters,
        "state.topic": config.state.topic,
    }
    prefix = "" if _is_id(config.app.id) else f"{config.app.id}-"  # names made of a wrong id are told once, by the id
    for path, topic in {"input.topic": config.input.topic, **outputs}.items():
        if prefix and path != "input.topic" and topic.startswith(prefix):
            continue
        if topic and (not _NAME.fullmatch(topic) or topic in (".", "..")):
            yield f"`{path}`: expected 1 to 249 letters, digits, dots, underscores or hyphens"
    for path, topic in outputs.items():
        if topic and topic == config.input.topic:
            yield f"`{path}` is the input topic: the worker would read its own output; choose another name"
    for topic, count in Counter(outputs.values()).items():
        if topic and count > 1:
            paths = " and ".join(f"`{path}`" for path, name in outputs.items() if name == topic)
            yield f"{paths} are the same topic: consumers could not tell the records apart; choose other names"


def _input(config: Config) -> Iterator[str]:
    given = config.input
    if given.null_key_buckets > 1 and given.null_key != "by_offset":
        yield "`input.null_key_buckets` has no effect unless `input.null_key` is by_offset"
    if given.dims is not None and not any(isinstance(side, str) and side for side in (given.x, given.y)):
        yield "`input.dims` is the length of an array, but `x` and `y` name no array by a single path: leave it out"
    for path, side in (("input.x", given.x), ("input.y", given.y)):
        if isinstance(side, tuple) and len(set(side)) < len(side):
            yield f"`{path}` names a path twice: its features would be copies of each other"
    try:
        given.start_ms()
    except ValueError as error:
        reason = str(error) if "zone" in str(error) else "expected earliest, latest or a time in ISO 8601"
        yield f"`input.start`: {reason}"


def _sides(config: Config) -> Iterator[str]:
    x, y = config.input.side_dims(config.input.x), config.input.side_dims(config.input.y)
    if not y:
        yield "`input.y` is missing: bind the live side, the values to be watched"
    elif config.pairing.mode == "explicit" and not x:
        yield "`pairing.mode` explicit compares x with y, but `input.x` is not bound: bind it, or use stream"
    elif config.pairing.mode in ("stream", "reference", "lag", "single") and x:
        mode = config.pairing.mode
        other = "" if mode == "single" else ", or use explicit"
        yield f"`pairing.mode` {mode} takes one sample a record, but `input.x` is bound: remove it{other}"
    elif x and x != y and _of_one_space(config):
        yield f"`input.x` binds {x} values and `input.y` binds {y}: both sides of a pair need the same number"


def _of_one_space(config: Config) -> bool:
    try:
        return facts(config.model.kind).same_space
    except ValueError:
        return False  # a problem of its own


def _kind(config: Config) -> Iterator[str]:
    name, mode = config.model.kind, config.pairing.mode
    try:
        found = facts(name)
    except ValueError as error:
        yield str(error)
        return
    modes = _modes(name, found)
    if mode not in modes:
        yield f"`pairing.mode` {mode} is not for `model.kind` {name}: use {' or '.join(modes)}"
    if config.model.options and name in BUILT_IN:
        own = "model" if name == RATIO else name
        yield f"`model.options` are of kinds of other packages: settings of {name} stand in section `{own}`"
    for other in BUILT_IN:
        if other not in (name, RATIO):
            yield from _unused(config, other)


def _modes(name: str, found: Facts) -> tuple[str, ...]:
    if name == RATIO:
        return "explicit", "stream", "reference"
    return ("single",) if found.sides == "single" else ("explicit", "lag")


def _unused(config: Config, kind: str) -> Iterator[str]:
    section: msgspec.Struct = getattr(config, kind)
    for name, field in fields_of(type(section)).items():
        if getattr(section, name) != field.default:
            yield f"`{kind}.{name}` has no effect unless `model.kind` is {kind}"


def _pairing(config: Config) -> Iterator[str]:
    given = config.pairing
    if given.mode != "lag":
        for name in ("lag", "max_gap"):
            if getattr(given, name) != getattr(PairingConfig(), name):
                yield f"`pairing.{name}` has no effect unless `pairing.mode` is lag"
    elif config.model.kind == "koopman" and config.koopman.lag != given.lag:
        yield f"`koopman.lag` is {config.koopman.lag} and `pairing.lag` {given.lag}: give both the same number"
    elif given.max_gap > 0 and config.bus.kind == "files" and not config.input.timestamp:
        yield "`pairing.max_gap` is event time, and lines of files have none of their own: bind `input.timestamp`"


def _detector(config: Config) -> Iterator[str]:
    mode, ratio = config.pairing.mode, config.model.kind == RATIO
    if not ratio and (config.model.atoms is not None or config.model.alpha != ModelConfig().alpha):
        yield f"`model.alpha` and `model.atoms` are settings of `model.kind` ratio, not of {config.model.kind}"
    for name in () if ratio else ("spikes", "transform"):
        if getattr(config.detector, name) != getattr(DetectorConfig(), name):
            yield f"`detector.{name}` has no effect for `model.kind` {config.model.kind}: scores are ranked as they are"
    if ratio and mode != "explicit" and (config.model.atoms is not None or config.model.alpha != ModelConfig().alpha):
        yield f"`model.alpha` and `model.atoms` are fixed in `pairing.mode` {mode}: leave them out, or bind both sides"
    if config.detector.dead_time > 0 and config.bus.kind == "files" and not config.input.timestamp:
        yield "`detector.dead_time` is event time, and lines of files have none of their own: bind `input.timestamp`"
    if (config.detector.escalation or 1.0) > 1.0 and config.bus.kind == "files" and not config.input.timestamp:
        yield "`detector.escalation` decays in event time, and lines of files have none: bind `input.timestamp`"
    dependence = config.detector.dependence
    if dependence not in ("auto", "none") and mode == "explicit" and ratio:
        yield (
            f"`detector.dependence` {dependence} needs `pairing.mode` stream: pairs are compared side by side, not in "
            "time"
        )
    yield from _period(config)


def _period(config: Config) -> Iterator[str]:
    period = config.detector.period
    if not period:
        if config.detector.time_zone != "UTC":
            yield "`detector.time_zone` serves seasons alone: set `detector.period`, or leave it out"
        return
    if config.pairing.mode != "stream":
        yield f"`detector.period` needs `pairing.mode` stream: in {config.pairing.mode} no season is taken out"
    if config.model.kind != RATIO:
        yield f"`detector.period` has no effect for `model.kind` {config.model.kind}: scores are ranked as they are"
    if config.bus.kind == "files" and not config.input.timestamp:
        yield "`detector.period` is event time, and lines of files have none of their own: bind `input.timestamp`"
    if config.detector.dependence not in ("auto", "whiten"):
        yield f"`detector.period` needs `detector.dependence` auto or whiten, not {config.detector.dependence}"
    for text in () if period == ("auto",) else period:
        try:
            parse_duration(text)
        except ValueError:
            yield "`detector.period` takes durations such as 1d and 7d, or auto alone"


def _silence(config: Config) -> Iterator[str]:
    limit_s, ttl_s = config.detector.silence, config.state.ttl
    if limit_s <= 0:
        return
    if config.bus.kind == "files" and not config.input.timestamp:
        yield "`detector.silence` is event time, and lines of files have none of their own: bind `input.timestamp`"
    if 0 < ttl_s <= limit_s * 9 / 8:
        yield (
            f"`detector.silence` ({format_duration(limit_s)}), an eighth of it added, must be shorter than `state.ttl` "
            f"({format_duration(ttl_s)}): keys would be forgotten before their silence is an alarm; lower the one, or "
            "raise the other, or set `state.ttl` to 0"
        )


def _reference(config: Config) -> Iterator[str]:
    given = config.reference
    if config.pairing.mode != "reference":
        for name, field in fields_of(ReferenceConfig).items():
            if getattr(given, name) != field.default:
                yield f"`reference.{name}` has no effect unless `pairing.mode` is reference"
        return
    if config.detector.warmup is not None:
        yield "`detector.warmup` has no effect in `pairing.mode` reference: `reference.samples` says what a key learns"
    if config.detector.profile != "default":
        yield "`detector.profile` has no effect in `pairing.mode` reference: leave it out"
    if config.detector.dependence not in ("auto", "none"):
        yield (
            f"`detector.dependence` {config.detector.dependence} needs `pairing.mode` stream: a frozen reference is "
            "tested for dependence, but not whitened, thinned or blocked"
        )
    if config.detector.fleet_keys is not None or config.detector.fleet_false_alarms_per_day is not None:
        yield (
            "`detector.fleet_keys` and `.fleet_false_alarms_per_day` have no effect in `pairing.mode` reference, where "
            "a reference from a file shows no rate: set `detector.arl` instead, to fleet_keys times samples of a key "
            "per day over fleet_false_alarms_per_day"
        )
    yield from _reference_range(config)


def _reference_range(config: Config) -> Iterator[str]:
    given = config.reference
    if not (given.start or given.end):
        return
    if given.file:
        yield "`reference.file` leaves `reference.start` and `reference.end` without effect: take one or the other"
    if config.bus.kind == "files" and not config.input.timestamp:
        yield "`reference.start` and `.end` are event time, and lines of files have none: bind `input.timestamp`"
    times: list[int] = []
    for name, read in (("start", given.start_ms), ("end", given.end_ms)):
        try:
            time_ms = read()
        except ValueError as error:
            yield f"`reference.{name}`: {error if 'zone' in str(error) else 'expected a time in ISO 8601'}"
        else:
            times += [] if time_ms is None else [time_ms]
    if len(times) == 2 and times[0] >= times[1]:
        yield "`reference.end` must be later than `reference.start`"


def _fleet(config: Config) -> Iterator[str]:
    detector = config.detector
    if (detector.fleet_keys is None) != (detector.fleet_false_alarms_per_day is None):
        yield "`detector.fleet_keys` and `detector.fleet_false_alarms_per_day` go together: give both or neither"
    elif detector.fleet_keys is not None:
        if detector.arl != DetectorConfig().arl:
            yield "`detector.arl` contradicts `detector.fleet_false_alarms_per_day`, which sets it per key: take one"
        if config.bus.kind == "files" and not config.input.timestamp:
            yield (
                "`detector.fleet_false_alarms_per_day` needs the keys' rates in event time, and lines of files have no "
                "time of their own: bind `input.timestamp`"
            )


def _commit(config: Config) -> Iterator[str]:
    commit = config.commit
    if commit.interval < MIN_COMMIT_INTERVAL_S:
        yield "`commit.interval` is below 200ms: transactions would cost more than the work; take 200ms or more"
    if commit.timeout > config.worker.shutdown_grace:
        yield "`commit.timeout` is longer than `worker.shutdown_grace`: the last commit could not end in time"
    if commit.timeout >= config.worker.progress_timeout:
        yield "`worker.progress_timeout` must be longer than `commit.timeout`: a slow commit is no stalled loop"
    if config.output.max_dead_letter_bytes > commit.max_bytes:
        yield "`output.max_dead_letter_bytes` is larger than `commit.max_bytes`: one dead letter must fit in a commit"


def _telemetry(config: Config) -> Iterator[str]:
    if not config.telemetry.host:
        yield "`telemetry.host` is empty: name an address, such as 127.0.0.1, or 0.0.0.0 for all of this machine"


def contradictions(config: Config) -> list[str]:
    """All contradictions of a configuration; empty when there are none."""
    rules = (
        *(_app, _bus, _topics, _input, _sides, _kind, _pairing, _detector, _silence, _reference, _fleet),
        *(_commit, _telemetry),
    )
    return [problem for rule in rules for problem in rule(config)]
