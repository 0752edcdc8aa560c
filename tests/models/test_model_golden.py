"""Rows that former releases kept of a key: continued bit by bit, or refused where they are laid out otherwise."""

from __future__ import annotations

import base64

import pytest
from model_golden import FOLDER, MODELS, ROWS, go_on, path_of, read

OTHER_ROWS = sorted(
    path.name for path in FOLDER.glob("model-*.json") if path not in {path_of(name, row) for name, row in ROWS.items()}
)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_golden_row_goes_on_bit_by_bit(name: str) -> None:
    golden, model = read(path_of(name, ROWS[name])), MODELS[name]()
    slot = model.allocate(b"another key")
    model.restore(slot, base64.b64decode(golden.snapshot))
    assert go_on(model, slot) == (golden.answers, golden.after)


@pytest.mark.parametrize("file", OTHER_ROWS)
def test_a_row_of_another_layout_is_refused(file: str) -> None:
    golden = read(FOLDER / file)
    model = MODELS[golden.model]()
    slot = model.allocate(b"key")
    before = model.snapshot(slot)
    with pytest.raises(ValueError, match=f"snapshot of {golden.model}: configuration is"):
        model.restore(slot, base64.b64decode(golden.snapshot))
    assert model.snapshot(slot) == before


def test_there_are_rows_of_former_layouts() -> None:
    assert {f"model-{name}-row1.json" for name in MODELS} <= set(OTHER_ROWS)
