"""Bytes of one key of the stream detector, by what they are for.

`run()` gives them by profile and number of features, with the default settings (`make bench-footprint`; the last line
is JSON).
"""

from __future__ import annotations

import json

from kstream_worker.detectors.ranks import RankBank

DIMS = (1, 2, 5, 10, 20)


def run() -> dict[str, dict[str, dict[str, int]]]:
    """Bytes by part, and `total`, by profile and by number of features."""
    return {profile: {str(d): _bytes(d, profile) for d in DIMS} for profile in ("default", "compact")}


def _bytes(d: int, profile: str) -> dict[str, int]:
    bank = RankBank(d, profile=profile, capacity=1)
    return {**bank.bytes_by_part(), "total": bank.bytes_per_key}


if __name__ == "__main__":
    result = run()
    for profile, by_dims in result.items():
        for d, parts in by_dims.items():
            print(f"{profile}, {d} features: {parts['total']} bytes")
            print("    " + ", ".join(f"{part} {size}" for part, size in parts.items() if part != "total" and size))
    print(json.dumps(result))
