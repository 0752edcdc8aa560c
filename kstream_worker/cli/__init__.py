"""The command line: one module per command, each with `add_parser(subparsers)` and `run(args) -> int`.

Modules import what is heavy inside `run`, so that `--help` and `version` answer at once.
"""
