"""`kstream-worker state`: what is kept of each key; list, show, export, import, reset, verify."""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstream_worker.cli.options import add_config

_READS = "Reads only: needs READ on the state topic and DESCRIBE on input topic and group."
_WRITES = "Stop all workers first. Needs the rights of a worker."


def add_parser(subparsers: Any) -> None:
    """Add the command and what it can do."""
    parser = subparsers.add_parser(
        "state",
        help="look at the state of the models, move it, reset a key, check it",
        description="The state of the models, in the state topic or in the database of an output folder. "
        "docs/state.md says what is kept where.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    _add_list(actions)
    _add_show(actions)
    _add_export(actions)
    _add_import(actions)
    _add_reset(actions)
    _add(actions, "verify", "read all state and say what is wrong with it; exit 1 if anything is", _READS)


def run(args: argparse.Namespace) -> int:
    """Do it."""
    from kstream_worker.cli import state_actions

    action: Callable[[argparse.Namespace], int] = state_actions.ACTIONS[args.action]
    return action(args)


def _add(actions: Any, name: str, help: str, rights: str) -> argparse.ArgumentParser:
    description = f"{help[0].upper()}{help[1:]}. {rights}"
    parser: argparse.ArgumentParser = actions.add_parser(name, help=help, description=description)
    add_config(parser)
    parser.set_defaults(run=run, wrong_usage=parser.error)
    return parser


def _add_list(actions: Any) -> None:
    parser = _add(actions, "list", "a line for each partition, with --keys for each key", _READS)
    parser.add_argument("--keys", action="store_true", help="the keys, too")
    _add_partition(parser)
    parser.add_argument("--json", action="store_true", help="a JSON object a line")


def _add_show(actions: Any) -> None:
    parser = _add(actions, "show", "what is kept of one key", _READS)
    _add_key(parser)
    _add_partition(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _add_export(actions: Any) -> None:
    parser = _add(actions, "export", "write all state into a file", _READS)
    parser.add_argument("file", type=Path, metavar="FILE", help="to be made")


def _add_import(actions: Any) -> None:
    parser = _add(actions, "import", "write exported state into an empty state topic or output folder", _WRITES)
    parser.add_argument("file", type=Path, metavar="FILE", help="made by `state export`")
    offsets = parser.add_mutually_exclusive_group()
    offsets.add_argument(
        "--same-offsets",
        action="store_true",
        default=None,
        dest="same_offsets",
        help="the input has the same records at the same offsets: go on exactly where the export was",
    )
    offsets.add_argument(
        "--new-offsets",
        action="store_false",
        default=None,
        dest="same_offsets",
        help="the input has other offsets: go on at the group's offset, or where input.start says",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace state that is there, and accept what the message said"
    )


def _add_reset(actions: Any) -> None:
    parser = _add(actions, "reset", "let one key start afresh at the committed offset", _WRITES)
    parser.epilog = (
        "While workers run, produce a record of the key with a null value to the input topic instead: that is the same."
    )
    _add_key(parser)
    _add_partition(parser)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="of the input, as text")
    parser.add_argument("--base64", action="store_true", help="KEY is in base64")


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partition", type=_number, metavar="N", help="of the input: look at this one alone")


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("expected a whole number, at least 0")
    return int(text)


def key_of(args: argparse.Namespace) -> bytes:
    """The key that was named; wrong base64 is wrong usage."""
    text: str = args.key
    if not args.base64:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text.removeprefix("base64:"), validate=True)
    except (binascii.Error, ValueError) as error:
        args.wrong_usage(f"KEY is no base64: {error}")
        raise
