"""`kstream-worker check`: what is wrong with a configuration, its topics and rights, before anything runs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from kstream_worker.cli.options import add_config, load_config, quiet_logs
from kstream_worker.errors import EXIT_CONFIG, EXIT_OK, ConfigError

if TYPE_CHECKING:
    from kstream_worker.config import Config


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("check", help="say what is wrong with a configuration, topics and rights")
    add_config(parser)
    parser.add_argument(
        "--offline", action="store_true", help="the configuration alone, without asking for topics and rights"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print all problems; 78 when there are any."""
    from kstream_worker.config import ConfigProblems

    try:
        config = load_config(args)
    except ConfigProblems as error:
        return _report(error.problems)
    quiet_logs(args, config)

    from kstream_worker import service

    def warn(text: str) -> None:
        print(f"- warning: {args.scrub(text)}", file=sys.stderr)

    problems = _offline(config) if args.offline else service.check(config, warn=warn)
    return _report([args.scrub(problem) for problem in problems])


def _offline(config: Config) -> list[str]:
    """What only the parts themselves know: settings of the client, bindings, limits of the detector."""
    from kstream_worker import app

    problems: list[str] = []
    for build in (app.build_bank, app.build_bus):
        try:
            build(config)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _report(problems: tuple[str, ...] | list[str]) -> int:
    if not problems:
        print("ok")
        return EXIT_OK
    for problem in problems:
        print(f"- {problem}")
    plural = "problem" if len(problems) == 1 else "problems"
    print(f"{len(problems)} {plural} found", file=sys.stderr)
    return EXIT_CONFIG
