"""Models of River in rows of numbers: the same predictions as River's own, and what is refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from kstream_worker import app
from kstream_worker.config import from_dict
from kstream_worker.errors import ConfigError
from kstream_worker.models.contract import Shape
from kstream_worker.models.river import HELD, RiverModel

SHAPE = Shape(("a", "b"), ("p", "q"), 0)
N = 400


def config_of(**options: Any) -> dict[str, Any]:
    return {
        "app": {"id": "soft-sensors"},
        "bus": {"kind": "files", "files": {"inputs": "-"}},
        "input": {"x": ["a", "b"], "y": ["p"]},
        "model": {"kind": "river"},
        "river": options,
    }


def pairs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(5.0, 2.0, size=(N, 2))
    y = np.column_stack((x @ [1.0, 2.0] + 0.1 * rng.normal(size=N), x @ [-1.0, 0.5]))
    return x, y, np.arange(N, dtype=np.int64)


@pytest.mark.parametrize("name", list(HELD))
@pytest.mark.parametrize("scaler", ["standard", "none"])
def test_two_keys_in_turns_learn_what_two_models_of_river_do(name: str, scaler: str) -> None:
    river = pytest.importorskip("river", reason="River is an optional extra")
    from river import linear_model, optim, preprocessing

    assert river.__version__
    model = RiverModel(SHAPE, model=name, scaler=scaler, lr=0.001)
    x, y, times = pairs()
    slots = np.array([model.allocate(b"even"), model.allocate(b"odd")] * (N // 2))
    found = model.update(slots, x, y, times).values
    for key in range(2):
        for output in range(2):
            if name.endswith("PARegressor"):
                theirs: Any = linear_model.PARegressor(C=0.01, eps=0.1)
            else:
                theirs = linear_model.LinearRegression(optimizer=optim.SGD(0.001), intercept_lr=0.001)
            scale = preprocessing.StandardScaler()
            for i in range(key, N, 2):
                inputs = dict(zip(SHAPE.x_names, x[i].tolist(), strict=True))
                if scaler == "standard":
                    scale.learn_one(inputs)
                    inputs = scale.transform_one(inputs)
                assert found[i, output] == theirs.predict_one(inputs)
                theirs.learn_one(inputs, y[i, output])


def test_errors_are_held_back_at_first_and_name_the_output_that_misfits() -> None:
    pytest.importorskip("river", reason="River is an optional extra")
    model = RiverModel(SHAPE, settle=100)
    x, y, times = pairs()
    y[380:, 1] += 50.0
    slot = model.allocate(b"key")
    scores = model.update(np.full(N, slot, dtype=np.int64), x, y, times).scores
    assert np.isnan(scores[:100]).all()
    assert np.isfinite(scores[100:]).all()
    first, share = model.drivers(slot)[0]
    assert (first, share > 0.8) == ("q", True)


@pytest.mark.parametrize("name", list(HELD))
@pytest.mark.parametrize("scaler", ["standard", "none"])
@pytest.mark.parametrize("size", [1e12, 1e160, 1e300, 1.7e308])
def test_a_huge_value_leaves_the_state_finite(name: str, scaler: str, size: float) -> None:
    pytest.importorskip("river", reason="River is an optional extra")
    model = RiverModel(SHAPE, model=name, scaler=scaler, settle=1)
    x, y, times = pairs()
    x[100:105], y[105:110] = [size, -size], size
    x[150], y[150] = -size, -size
    slot = model.allocate(b"key")
    model.update(np.full(N, slot, dtype=np.int64), x, y, times)
    assert np.isfinite(model.slots.floats[slot]).all()
    assert model.drivers(slot) or not model.slots.floats[slot, -2:].any()


def test_it_is_configured_by_its_section() -> None:
    pytest.importorskip("river", reason="River is an optional extra")
    bank = app.build_bank(from_dict(config_of(lr=0.02)))
    assert bank.fingerprint != app.build_bank(from_dict(config_of(lr=0.03))).fingerprint
    with pytest.raises(ConfigError, match=r"tree\.HoeffdingTreeRegressor of River cannot be used"):
        app.build_bank(from_dict(config_of(model="tree.HoeffdingTreeRegressor")))
    with pytest.raises(ValueError, match="at most 8"):
        RiverModel(Shape(("a",), tuple("abcdefghi"), 0))


def test_its_options_are_refused_where_another_kind_is_chosen() -> None:
    values = config_of(lr=0.02)
    values["model"] = {"kind": "ratio"}
    values["input"]["x"] = "a"
    with pytest.raises(ConfigError, match=r"`river\.lr` has no effect unless `model\.kind` is river"):
        from_dict(values)
    values = config_of()
    values["model"]["options"] = {"lr": 0.1}
    with pytest.raises(ConfigError, match="settings of river stand in section `river`"):
        from_dict(values)


def test_without_river_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(ConfigError, match=r"pip install 'kstream-worker\[river\]'"):
        app.build_bank(from_dict(config_of()))
