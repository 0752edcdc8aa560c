"""`kstream-worker run`: the worker itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kstream_worker.cli.options import add_config, load_config
from kstream_worker.errors import EXIT_FATAL, Fatal, KstreamError

if TYPE_CHECKING:
    from kstream_worker.config import Config


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("run", help="run a worker until it is stopped or its input ends")
    add_config(parser)
    parser.add_argument(
        "--leave",
        action="store_true",
        help="at the end tell the group at once, also as a static member (group_instance_id): for scaling down",
    )
    parser.add_argument(
        "--drain",
        action="store_true",
        help="read nothing new: bring all models up to date, snapshot them all, and end; before an upgrade or a change "
        "of the configuration. Needs all partitions of the topic: stop the other workers",
    )
    parser.add_argument(
        "--discard-state",
        action="store_true",
        help="models of an older app.model_epoch are discarded; those of the present one are kept",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a worker; SIGTERM and SIGINT finish, commit and leave."""
    config = load_config(args)

    from kstream_worker import service

    try:
        return service.run(config, leave=args.leave, discard=args.discard_state, drain=args.drain)
    except Exception as error:
        if config.telemetry.log_format != "json":
            raise
        return _log_end(error, config, debug=args.debug)


def _log_end(error: Exception, config: Config, *, debug: bool) -> int:
    """Log why the worker ends, as one line like all before it: what collects logs takes no paragraph.

    A bug comes with its traceback: it may not happen a second time.
    """
    import structlog

    from kstream_worker.telemetry import logs

    logs.configure(config.telemetry.log_level, "json", config.secrets())
    known = isinstance(error, KstreamError)
    code = error.exit_code if isinstance(error, Fatal) else EXIT_FATAL
    why = str(error) if known else f"internal error: {type(error).__name__}: {error}; report it, please"
    trace = error if debug or not known else None
    structlog.get_logger(__name__).critical("ended", exit_code=code, why=why, exc_info=trace)
    return code
