"""From a file, the environment and flags to one checked configuration. Precedence: flag, environment, file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from kstream_worker.config.checks import contradictions
from kstream_worker.config.convert import Converter
from kstream_worker.config.detector import DEFAULT_ESCALATION
from kstream_worker.config.files import read_file
from kstream_worker.config.kinds import RATIO, facts
from kstream_worker.config.overrides import from_environment, from_flags
from kstream_worker.config.pairing import PairingMode
from kstream_worker.config.problems import ConfigProblems
from kstream_worker.config.schema import Config
from kstream_worker.config.tree import Tree, from_mapping, merge

_Section = TypeVar("_Section", bound=msgspec.Struct)


def _replace(section: _Section, **values: object) -> _Section:
    """`section` with those values that are not empty."""
    return msgspec.structs.replace(section, **{name: value for name, value in values.items() if value})


def _side(side: str | tuple[str, ...], dims: int | None) -> str | tuple[str, ...]:
    """A single path without a length names one number: a list of one."""
    return (side,) if isinstance(side, str) and side and dims is None else side


def _mode(config: Config) -> PairingMode:
    """What `pairing.mode` auto means; auto still where the kind is not known, which is a problem of its own."""
    kind = config.model.kind
    try:
        sides = facts(kind).sides
    except ValueError:
        return "auto"
    if sides == "single":
        return "single"
    if config.input.x and config.input.y:
        return "explicit"
    return "stream" if kind == RATIO else "lag"


def _escalation(config: Config) -> float:
    if config.detector.escalation is not None:
        return config.detector.escalation
    return 1.0 if config.bus.kind == "files" and not config.input.timestamp else DEFAULT_ESCALATION


def fill_defaults(config: Config) -> Config:
    """Fill in the defaults that depend on other keys."""
    app_id, kafka, output = config.app.id, config.bus.kafka, config.output
    servers = tuple(part.strip() for text in kafka.bootstrap_servers for part in text.split(",") if part.strip())
    kafka = _replace(kafka, bootstrap_servers=servers, group_id=kafka.group_id or app_id)
    mode = _mode(config) if config.pairing.mode == "auto" else config.pairing.mode
    given = config.input
    topic = given.topic or ("input" if config.bus.kind == "files" else "")
    return _replace(
        config,
        bus=_replace(config.bus, kafka=kafka),
        input=_replace(given, topic=topic, x=_side(given.x, given.dims), y=_side(given.y, given.dims)),
        pairing=_replace(config.pairing, mode=mode),
        detector=_replace(config.detector, escalation=_escalation(config)),
        output=_replace(
            output,
            estimates=output.estimates or f"{app_id}-estimates",
            alarms=output.alarms or f"{app_id}-alarms",
            dead_letters=output.dead_letters or f"{app_id}-dead-letters",
        ),
        state=_replace(config.state, topic=config.state.topic or f"{app_id}-state"),
    )


def _build(tree: Tree, problems: list[str]) -> Config:
    converter = Converter(Config)
    config: Config | None = converter.build(Config, tree)
    problems += converter.problems
    if config is not None:
        config = fill_defaults(config)
        problems += contradictions(config)
    if config is None or problems:
        raise ConfigProblems(problems)
    return config


def load(
    path: Path | str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    settings: Iterable[str] = (),
    flags: Iterable[tuple[str, str, str]] = (),
) -> Config:
    """One configuration.

    Args:
        path: TOML or YAML file; None for none.
        environment: variables of which those with the prefix `KSTREAM_WORKER__` are taken; None for none.
        settings: flags as `section.key=value`, later ones win.
        flags: named flags as `(flag, section.key, value)`.

    Raises:
        ConfigError: with all problems found, each naming the place and the remedy.
    """
    problems: list[str] = []
    tree = read_file(Path(path)) if path is not None else {}
    tree = merge(tree, from_environment(Config, environment or {}, problems))
    tree = merge(tree, from_flags(Config, settings, flags, problems))
    return _build(tree, problems)


def from_dict(values: Mapping[str, object]) -> Config:
    """A configuration from nested dictionaries, for code and notebooks.

    Raises:
        ConfigError: with all problems found.
    """
    return _build(from_mapping(values, "given values"), [])
