"""The bank of low-rank subspaces: its contract, its estimates, the sensors it names, its clusters."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.detection.series import data_folder
from benchmarks.subspaces import Union, auc, pump
from kstream_worker.config.olrsc import OlrscConfig
from kstream_worker.detectors.modelled import ModelBank
from kstream_worker.detectors.ranks import RankBank
from kstream_worker.models import OLRSC
from kstream_worker.models.contract import Estimates, Shape
from kstream_worker.models.olrsc import OlrscKind, OlrscModel, Settings
from kstream_worker.models.paper.olrsc import expressed_variance

Floats = NDArray[np.float64]
DOCS = Path(__file__).parents[2] / "docs"
NAMES = tuple("abcdefgh")
SETTINGS = {"rank": 3, "warmup": 60, "settle": 40}


def plant(rng: np.random.Generator, n: int, mixing: Floats) -> Floats:
    """Eight sensors in their own units that follow three causes."""
    unit = np.array([1.0, 1e5, 1e-3, 20.0, 3.0, 1.0, 50.0, 7.0])
    return 10.0 * unit + unit * (rng.normal(size=(n, 3)) @ mixing.T + 0.1 * rng.normal(size=(n, 8)))


@pytest.fixture
def mixing() -> Floats:
    return np.random.default_rng(11).normal(size=(8, 3))


@pytest.fixture
def samples(mixing: Floats) -> Floats:
    rng = np.random.default_rng(1)
    y = plant(rng, 400, mixing)
    y[rng.random(y.shape) < 0.05] = np.nan
    y[300] = np.nan
    return y


def run(model: OlrscModel, slot: int, y: Floats) -> Estimates:
    slots = np.full(len(y), slot, dtype=np.int64)
    return model.update(slots, None, y, np.zeros(len(y), dtype=np.int64))


def same(a: Floats, b: Floats) -> bool:
    return np.array_equal(a.view(np.int64), b.view(np.int64))


def test_cuts_other_keys_and_snapshots_change_no_bit(samples: Floats) -> None:
    whole = OlrscModel(NAMES, **SETTINGS)
    at_once = run(whole, whole.allocate(b"k"), samples)
    cut = OlrscModel(NAMES, **SETTINGS)
    other, slot = cut.allocate(b"other"), cut.allocate(b"k")
    values, scores = [], []
    for first, last in ((0, 1), (1, 59), (59, 61), (61, 170), (170, 400)):
        part = samples[first:last]
        mixed = np.repeat(part, 2, axis=0)
        mixed[::2] = 5.0 - np.nan_to_num(part)
        slots = np.tile([other, slot], len(part))
        got = cut.update(slots, None, mixed, np.zeros(len(mixed), dtype=np.int64))
        values.append(got.values[1::2])
        scores.append(got.scores[1::2])
        moved = OlrscModel(NAMES, **SETTINGS)
        moved.allocate(b"x")
        other, slot = moved.allocate(b"y"), moved.allocate(b"z")
        before = cut.snapshot(1)
        moved.restore(slot, before)
        assert moved.snapshot(slot) == before
        moved.restore(other, cut.snapshot(0))
        again = OlrscModel(NAMES, **SETTINGS)  # slots 0 and 1 again
        assert (again.allocate(b"other"), again.allocate(b"k")) == (0, 1)
        again.restore(0, moved.snapshot(other))
        again.restore(1, moved.snapshot(slot))
        cut, other, slot = again, 0, 1
    assert same(np.concatenate(values), at_once.values)
    assert same(np.concatenate(scores), at_once.scores)
    assert cut.drivers(slot) == whole.drivers(0)


def test_wrong_input_changes_nothing(samples: Floats) -> None:
    model = OlrscModel(NAMES, **SETTINGS)
    slot = model.allocate(b"k")
    run(model, slot, samples[:200])
    before = model.snapshot(slot)
    bad = samples[200:205].copy()
    bad[3, 2] = np.inf
    with pytest.raises(ValueError, match=r"y\[3, 2\] is inf"):
        run(model, slot, bad)
    with pytest.raises(ValueError, match="shape"):
        run(model, slot, samples[200:205, :7])
    with pytest.raises(ValueError, match="single samples"):
        model.update(np.array([slot]), samples[:1], samples[:1], np.array([0]))
    model.basis(slot)
    model.drivers(slot)
    assert model.snapshot(slot) == before
    other = OlrscModel(NAMES, **SETTINGS, lambda2=0.4)
    with pytest.raises(ValueError, match="configuration"):
        other.restore(other.allocate(b"k"), before)


def test_the_section_has_the_models_settings_and_defaults() -> None:
    given = inspect.signature(OlrscModel).parameters
    assert set(Settings._fields) == set(OlrscConfig.__struct_fields__) == set(given) - {"names", "seed"}
    for name in Settings._fields:
        assert getattr(OlrscConfig(), name) == given[name].default


def test_columns_and_memory() -> None:
    kind = OlrscKind()
    assert (kind.sides, kind.missing) == ("single", True)
    model = kind.build(Shape((), NAMES, 3), {"rank": 2})
    names = [column.name for column in model.columns]
    assert names[0] == "cleaned.a"
    assert names[8] == "corruption.a"
    assert names[16:] == ["subspace", "expressed_variance", "corrupted_share", "corruption"]
    assert model.watched == ("corruption", "corrupted_share")
    bytes_per_key = model.bytes_per_key
    slots = [model.allocate(bytes([i])) for i in range(40)]
    assert model.bytes_per_key == bytes_per_key
    assert model.nbytes >= 40 * bytes_per_key
    for slot in slots:
        model.free(slot)
    with pytest.raises(ValueError, match="no option 'ranks'"):
        kind.build(Shape((), NAMES, 3), {"ranks": 2})
    with pytest.raises(ValueError, match="rank is 8"):
        kind.build(Shape((), NAMES, 3), {"rank": 8})
    with pytest.raises(ValueError, match=r"shrinkage is 1e\+200"):
        kind.build(Shape((), NAMES, 3), {"shrinkage": 1e200})
    with pytest.raises(ValueError, match="at least 2"):
        kind.build(Shape((), ("a",), 3), {})


def test_estimates_are_in_the_sensors_units_and_fill_what_is_missing(mixing: Floats) -> None:
    rng = np.random.default_rng(5)
    y = plant(rng, 600, mixing)
    spread = y.std(axis=0)
    hidden = y[550:, 4].copy()
    y[550:, 4] = np.nan
    y[590:, 1] += 3.0 * spread[1]
    model = OLRSC(NAMES, rank=3, warmup=100, settle=0, subspaces=1)
    got = dict(zip(model.columns, model.update(y).values.T, strict=True))
    assert np.isnan(got["cleaned.a"][:100]).all()
    assert np.abs(got["cleaned.e"][550:] - hidden).mean() < 0.25 * spread[4]
    assert np.isnan(got["corruption.e"][550:]).all()
    assert got["corruption.b"][590:].mean() == pytest.approx(3.0 * spread[1], rel=0.25)
    for name in "acdfgh":
        assert np.abs(got[f"corruption.{name}"][590:]).mean() < 0.25 * got["corruption.b"][590:].mean()
    assert np.abs(got["cleaned.b"][590:] + got["corruption.b"][590:] - y[590:, 1]).max() < 1e-9 * 1e6
    assert 0.9 < got["expressed_variance"][-1] <= 1.0
    assert set(np.unique(got["corrupted_share"][550:]) * 7) <= set(np.arange(8.0))
    assert model.drivers()[0][0] == "b"
    assert sum(weight for _, weight in model.drivers()) == pytest.approx(1.0)


def test_the_broken_sensor_is_named() -> None:
    hits = 0
    for trial in range(20):
        samples, broken = pump(np.random.default_rng(trial), 860, noise=0.2, fault="offset", at=800)
        model = OLRSC(8, subspaces=1)
        model.update(samples)
        hits += f"s{broken}" in [name for name, _ in model.drivers()[:2]]
    assert hits >= 19


def test_an_alarm_on_the_scores_names_the_broken_sensor() -> None:
    samples, broken = pump(np.random.default_rng(12), 2000, noise=0.2, fault="offset", at=1700)
    names = [f"s{i}" for i in range(8)]
    model = OlrscModel(names, subspaces=1)
    watch = RankBank(
        2,
        feature_names=model.watched,
        arl=10_000.0,
        dependence="none",
        alternative="greater",
        spikes=False,
        transform="none",
    )
    bank = ModelBank(model, watch, Shape((), tuple(names), 0), missing=True)
    slots = np.full(len(samples), bank.allocate(b"pump"), dtype=np.int64)
    raised = [event for event in bank.update(slots, None, samples, slots).transitions if event.kind == "raised"]
    assert 1700 < raised[0].row < 1800
    assert raised[0].features[0][0] == f"s{broken}"


def test_labels_are_right_and_stay() -> None:
    union = Union(np.random.default_rng(2), dims=12, count=3, rank=2)
    clean, _, truth = union.draw(2500, 0.0)
    samples = clean + 0.02 * np.random.default_rng(3).normal(size=clean.shape)
    model = OLRSC(12, rank=6)
    labels = model.update(samples).values[200:, model.columns.index("subspace")]
    for k in range(3):
        names, counts = np.unique(labels[truth[200:] == k], return_counts=True)
        assert counts.max() >= 0.98 * counts.sum()  # one name for one subspace, over four clusterings
        assert names[counts.argmax()] in (0.0, 1.0, 2.0)


def test_one_subspace_has_one_label_and_the_basis_of_a_batch() -> None:
    samples, _ = pump(np.random.default_rng(4), 1500, noise=0.1)
    model = OLRSC(8)
    labels = model.update(samples).values[200:, model.columns.index("subspace")]
    assert (labels == 0.0).all()
    scaled = (samples - np.median(samples, axis=0)) / samples.std(axis=0)
    _, _, rows = np.linalg.svd(scaled - scaled.mean(axis=0), full_matrices=False)
    assert expressed_variance(model.basis, rows[:3].T) > 0.99


def test_a_tilt_of_the_subspaces_raises_the_scores() -> None:
    union = Union(np.random.default_rng(7))
    _, before, _ = union.draw(1500, 0.5)
    _, after, _ = union.tilted(20.0).draw(50, 0.5)
    model = OLRSC(100, subspaces=1)
    scores = model.update(np.vstack((before, after))).scores
    assert np.isnan(scores[:500]).all()
    assert np.isfinite(scores[500:]).all()
    assert auc(scores[1000:1500, 0], scores[1500:, 0]) >= 0.99


def test_nothing_grows_and_nothing_ends_in_nan(mixing: Floats) -> None:
    rng = np.random.default_rng(9)
    y = plant(rng, 6000, mixing)
    y[1000:3000] = y[999]  # nothing moves
    y[3000:3100, 2] = 1e300
    y[3100, :] = -1e300
    y[3200:3400] = np.nan
    model = OLRSC(NAMES, **SETTINGS)
    size = len(model.snapshot())
    got = model.update(y)
    seen = np.ones(6000, dtype=bool)
    seen[3200:3400] = False
    assert np.isfinite(got.values[60:][seen[60:]]).all()
    assert np.isnan(got.values[~seen]).all()
    assert len(model.snapshot()) == size
    assert np.abs(got.values[5000:, 0] - y[5000:, 0]).mean() < 1.0
    assert np.isfinite(model.basis).all()


def test_a_sensor_without_a_warm_up_is_left_out(mixing: Floats) -> None:
    y = plant(np.random.default_rng(6), 300, mixing)
    y[:, 3] = 7.0  # constant: scaled by 1
    y[:95, 6] = np.nan
    model = OLRSC(NAMES, rank=2, warmup=100, settle=0, subspaces=1)
    got = model.update(y).values[100:]
    assert np.isnan(got[:, [6, 14]]).all()
    assert (got[:, 3] == 7.0).all()
    assert np.isfinite(got[:, [0, 1, 2, 4, 5, 7]]).all()


def test_a_warm_up_that_ends_with_an_empty_sample_is_balanced(mixing: Floats) -> None:
    y = plant(np.random.default_rng(6), 100, mixing)
    sizes = []
    for last in (y[99], np.full(y.shape[1], np.nan)):
        model = OLRSC(NAMES, rank=2, warmup=100, subspaces=1)
        model.update(np.vstack((y[:99], last)))
        sizes.append(np.linalg.norm(model.basis))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1)


def test_the_documented_example_runs() -> None:
    found = doctest.testfile(str(DOCS / "models.md"), module_relative=False)
    assert found.attempted > 10
    assert found.failed == 0


def test_the_pump_bench_names_the_sensors_at_fault() -> None:
    if not (data_folder() / "skab").is_dir():
        pytest.skip(f"no {data_folder() / 'skab'}: set KSTREAM_DATA to the folder of the local data")
    block = next(b for b in re.findall(r"```python\n(.*?)```", (DOCS / "models.md").read_text(), re.S) if "skab" in b)
    spoken: dict[str, dict[str, list[str]]] = {}
    exec(block, spoken)  # noqa: S102
    named = spoken["named"]
    for rotor in ("other/5.csv", "other/6.csv", "other/7.csv"):
        assert set(named[rotor]) == {"Accelerometer1RMS", "Accelerometer2RMS"}
    valves = [sensors for name, sensors in named.items() if name.startswith("valve1")]
    assert len(valves) == 16
    assert sum("Volume Flow RateRMS" in sensors for sensors in valves) >= 13
