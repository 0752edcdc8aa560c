"""`kstream-worker compile`: fill the cache of compiled kernels, at set-up or while an image is built."""

from __future__ import annotations

import argparse
import time
from typing import Any

from kstream_worker.errors import EXIT_OK, ConfigError


def add_parser(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("compile", help="fill the cache of compiled kernels, so that no start waits for it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compile for all kinds of pairing and of models; says where the cache is."""
    del args
    from kstream_worker import app
    from kstream_worker.config import from_dict
    from kstream_worker.config.kinds import BUILT_IN, RATIO
    from kstream_worker.numerics.jit import cache_folder

    files = {"kind": "files", "files": {"inputs": ["-"], "output_dir": "-"}}
    for mode, x in (("stream", ""), ("explicit", "x"), ("reference", "")):
        started = time.monotonic()
        given = {"bus": files, "input": {"x": x, "y": "y"}, "pairing": {"mode": mode}}
        app.warm_up_kernels(from_dict({"app": {"id": "compile"}, **given}))
        print(f"kernels of pairing.mode {mode}: {time.monotonic() - started:.1f} s", flush=True)
    for kind in BUILT_IN:
        if kind == RATIO:
            continue
        started = time.monotonic()
        given = {"bus": files, "input": {"y": "y"}, "model": {"kind": kind}}
        try:
            app.warm_up_kernels(from_dict({"app": {"id": "compile"}, **given}))
        except ConfigError as error:  # what it needs is not installed
            print(f"no kernels of model.kind {kind}: {error}")
        else:
            print(f"kernels of model.kind {kind}: {time.monotonic() - started:.1f} s", flush=True)
    started = time.monotonic()
    _warm_up_estimator()
    print(f"kernels of the estimator for notebooks: {time.monotonic() - started:.1f} s")
    print(f"cache: {cache_folder()}")
    return EXIT_OK


def _warm_up_estimator() -> None:
    import numpy as np

    from kstream_worker.models import OLRE

    rng = np.random.default_rng(0)
    model = OLRE(1)
    model.update(rng.standard_normal((300, 1)), rng.standard_normal((300, 1)))
    model.ratio(np.zeros((1, 1)))
