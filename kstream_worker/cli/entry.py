"""The entry point: picks the command, turns errors into one clear paragraph and an exit code.

Exit codes: 0 done, 1 fatal (the message says what to do), 2 wrong usage, 78 wrong configuration, topic or right,
130 interrupted by Ctrl-C (`run` ends with 0 then).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import textwrap
import traceback
from collections.abc import Sequence

from kstream_worker.errors import EXIT_FATAL, Fatal, KstreamError, Retry

COMMANDS = ("run", "check", "topics", "state", "calibrate", "demo", "broker", "compile", "version")
_EXIT_INTERRUPTED = 130


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser with these commands."""
    parser = argparse.ArgumentParser(
        prog="kstream-worker",
        description="Drift detection for telemetry on Kafka: one online model per record key, alarms at a stated "
        "false-alarm rate, exactly once.",
        epilog="Exit codes: 0 done, 1 fatal, 2 wrong usage, 78 wrong configuration, topic or right.",
        allow_abbrev=False,
    )
    parser.set_defaults(debug=False)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in commands:
        importlib.import_module(f"kstream_worker.cli.{command}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Wrong usage leaves through `SystemExit(2)`, as argparse does."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = [name for name in arguments[:1] if name in COMMANDS]  # only its module is imported
    args = build_parser(chosen or COMMANDS).parse_args(arguments)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`); keep the interpreter from complaining at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FATAL
    except Exception as error:
        return _report(error, args)


def _report(error: Exception, args: argparse.Namespace) -> int:
    scrub = getattr(args, "scrub", str)  # set as soon as a configuration with secrets is loaded
    if args.debug:
        sys.stderr.write(scrub("".join(traceback.format_exception(error))))
    known = isinstance(error, KstreamError)
    message = str(error) if known else f"internal error: {type(error).__name__}: {error}"
    advice = "" if known or args.debug else " Run it again with --debug for the traceback, and report it, please."
    if isinstance(error, Retry):
        advice = ". Check bus.kafka.bootstrap_servers and that the brokers run"
    print(_paragraph(f"kstream-worker: {scrub(message)}{advice}"), file=sys.stderr)
    return error.exit_code if isinstance(error, Fatal) else EXIT_FATAL


def _paragraph(text: str) -> str:
    return "\n".join(
        textwrap.fill(line, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )
