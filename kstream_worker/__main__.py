"""`python -m kstream_worker` and the console script `kstream-worker`."""

from __future__ import annotations

from kstream_worker.cli.entry import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
