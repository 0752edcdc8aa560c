"""Golden rows of models: what a release kept of a key, the pairs that follow, and what it made of them.

`python tests/models/model_golden.py` writes the files of today's rows where they do not exist. Those that exist are
never written again: they stand for what releases have kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kstream_worker.models.cme import CmeModel
from kstream_worker.models.cme.layout import ROW as CME_ROW
from kstream_worker.models.contract import Model
from kstream_worker.models.koopman import KoopmanModel
from kstream_worker.models.koopman.layout import ROW as KOOPMAN_ROW

FOLDER = Path(__file__).parents[1] / "golden" / "state"
NAMES = ("a", "b")
HALF = 150  # pairs before the snapshot, and after it

MODELS: dict[str, Callable[[], Model]] = {
    "cme": lambda: CmeModel(NAMES, NAMES, atoms=8, warmup=20, forgetting=0.98),
    "koopman": lambda: KoopmanModel(NAMES, atoms=8, warmup=20, horizon=3, modes=2, forgetting=0.98),
}
ROWS = {"cme": CME_ROW, "koopman": KOOPMAN_ROW}


class Golden(NamedTuple):
    """One file.

    Attributes:
        model: its name in `MODELS`.
        snapshot: of the key after `HALF` pairs, as base64.
        answers: SHA-256 of what it answers for the pairs that follow.
        after: SHA-256 of its row after them.
    """

    model: str
    snapshot: str
    answers: str
    after: str


def path_of(model: str, row: int) -> Path:
    return FOLDER / f"model-{model}-row{row}.json"


def states() -> NDArray[np.float64]:
    """A rotation in noise that turns back behind the snapshot, of values that arithmetic alone makes."""
    state, noise = np.zeros(2), np.random.default_rng(5).integers(-64, 65, size=(2 * HALF, 2)) / 64.0
    found = [state]
    for t in range(2 * HALF):
        turn = 0.3125 if t < HALF + 60 else -0.3125
        state = np.array([0.625 * state[0] + turn * state[1], 0.625 * state[1] - turn * state[0]]) + noise[t]
        found.append(state)
    return np.array(found)


def go_on(model: Model, slot: int) -> tuple[str, str]:
    """Digests of the answers for the second half, and of the row after it."""
    z = states()
    said = model.update(np.full(HALF, slot), z[HALF:-1], z[HALF + 1 :], 1000 * np.arange(HALF, 2 * HALF))
    digest = hashlib.sha256(said.values.tobytes() + said.scores.tobytes()).hexdigest()
    return digest, hashlib.sha256(model.snapshot(slot)).hexdigest()


def golden_of(name: str) -> Golden:
    """What this release makes of it."""
    z, model = states(), MODELS[name]()
    slot = model.allocate(b"key")
    model.update(np.full(HALF, slot), z[:HALF], z[1 : HALF + 1], 1000 * np.arange(HALF))
    snapshot = base64.b64encode(model.snapshot(slot)).decode()
    return Golden(name, snapshot, *go_on(model, slot))


def read(path: Path) -> Golden:
    return Golden(**json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    """Write what is missing."""
    for name, row in ROWS.items():
        if not path_of(name, row).exists():
            path_of(name, row).write_text(json.dumps(golden_of(name)._asdict(), indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
