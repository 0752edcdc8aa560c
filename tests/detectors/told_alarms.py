"""Changes in the second of three features, and what alarms must say of them, whatever the detector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kstream_worker.records import Explanation, Transition


def change(after: NDArray[np.float64], kind: str) -> None:
    """Change float64[n, keys, 3] of standard normal samples in place; one that gets stuck is left to the caller."""
    if kind == "level":
        after[:, :, 1] += 1.0
    elif kind == "spread":
        after[:, :, 1] *= 2.0
    elif kind == "dependence":
        after[:, :, 1] = 0.8 * after[:, :, 0] + 0.6 * after[:, :, 1]


def check_told(alarms: Sequence[Transition], kind: str, keys: int, first: int) -> list[Explanation]:
    """The explanations of the keys' alarms for a change at sample `first`, which name kind, time and feature."""
    told = [one.explanation for one in alarms if one.explanation is not None]
    assert len(told) == len(alarms) >= keys - 2
    assert sum(one.kind == kind for one in told) >= 0.85 * len(told)
    assert sum((one.change_seq_low or 0) <= first <= one.change_seq_high for one in told) >= 0.8 * len(told)
    assert sum(one.features[0][0] in ("f1", "f0")[: 1 + (kind == "dependence")] for one in alarms) >= 0.9 * len(alarms)
    return told
