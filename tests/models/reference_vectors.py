"""Reads reference vectors, and compares by their rule: max |got - expected| <= rtol max(1, max |expected|)."""

import json
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent.parent / "golden"


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return content


def assert_close(got: Any, expected: Any, rtol: float) -> None:
    got, expected = np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert got.shape == expected.shape
    worst = np.abs(got - expected).max()
    assert worst <= rtol * max(1.0, np.abs(expected).max()), f"off by {worst:.3g}"
