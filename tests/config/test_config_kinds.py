"""Kinds of models: how they are found, and what of a configuration fits them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plugin_support import forecast_module, register

from kstream_worker import app
from kstream_worker.config import Config, ConfigProblems, from_dict, load
from kstream_worker.config.kinds import BUILT_IN, facts
from kstream_worker.errors import ConfigError
from kstream_worker.models.kinds import KINDS

KIND_MODULE = """
class Kind:
    def __init__(self, sides, same_space, missing):
        self.sides, self.same_space, self.missing = sides, same_space, missing
    def build(self, shape, options):
        raise ValueError(f"refused {sorted(options)} for {shape.x_names} and {shape.y_names}")

PAIR = Kind("pair", True, False)
MAPPING = Kind("pair", False, False)
HOLED = Kind("single", True, True)
WRONG = Kind("triple", True, True)
"""
KINDS_THERE = {
    "pair": "some_kinds:PAIR",
    "mapping": "some_kinds:MAPPING",
    "holed": "some_kinds:HOLED",
    "wrong": "some_kinds:WRONG",
    "gone": "not_there:KIND",
    "twice": "some_kinds:PAIR",
    "forecast": "kstream_forecast:KIND",
}


@pytest.fixture(autouse=True)
def kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_kinds.py").write_text(KIND_MODULE)
    register(tmp_path, "kinds-of-ours", KINDS_THERE)
    register(tmp_path, "kinds-of-others", {"twice": "some_kinds:HOLED"})
    monkeypatch.syspath_prepend(tmp_path)
    forecast_module()


def values(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "app": {"id": "pumps"},
        "bus": {"kafka": {"bootstrap_servers": ["localhost:9092"]}},
        "input": {"topic": "readings", "y": ["temp", "flow"]},
    }
    for path, value in changes.items():
        section, name = path.split("__")
        made.setdefault(section, {})[name] = value
    return made


def config_of(**changes: Any) -> Config:
    return from_dict(values(**changes))


def problem_of(**changes: Any) -> str:
    with pytest.raises(ConfigProblems) as caught:
        config_of(**changes)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("kind", "x", "mode"),
    [
        ("ratio", (), "stream"),
        ("ratio", ("a", "b"), "explicit"),
        ("pair", (), "lag"),
        ("pair", ("a", "b"), "explicit"),
        ("mapping", ("a",), "explicit"),
        ("holed", (), "single"),
    ],
)
def test_auto_means_what_the_kind_takes_of_what_is_bound(kind: str, x: tuple[str, ...], mode: str) -> None:
    assert config_of(model__kind=kind, input__x=x).pairing.mode == mode


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__kind": "ration"}, "did you mean ratio?"),
        ({"model__kind": "no-such"}, "holed (kinds-of-ours), mapping (kinds-of-ours)"),
        ({"model__kind": "gone"}, "gone (kinds-of-ours, not_there:KIND) cannot be loaded: ModuleNotFoundError"),
        ({"model__kind": "wrong"}, "is no kind of models: its `sides` is missing or wrong"),
        ({"model__kind": "twice"}, "registered by kinds-of-others and kinds-of-ours: uninstall one"),
        ({"pairing__mode": "lag"}, "`pairing.mode` lag is not for `model.kind` ratio: use explicit or stream"),
        ({"pairing__mode": "single"}, "`pairing.mode` single is not for `model.kind` ratio"),
        (
            {"model__kind": "pair", "pairing__mode": "stream"},
            "stream is not for `model.kind` pair: use explicit or lag",
        ),
        ({"model__kind": "pair", "pairing__mode": "explicit"}, "`input.x` is not bound"),
        ({"model__kind": "pair", "input__x": ["a"]}, "`input.x` binds 1 values and `input.y` binds 2"),
        ({"model__kind": "pair", "pairing__mode": "lag", "input__x": ["a", "b"]}, "remove it, or use explicit"),
        ({"model__kind": "holed", "input__x": ["a", "b"]}, "`pairing.mode` single takes one sample a record"),
        ({"pairing__lag": 2}, "`pairing.lag` has no effect unless `pairing.mode` is lag"),
        ({"pairing__max_gap": "1m"}, "`pairing.max_gap` has no effect unless `pairing.mode` is lag"),
        ({"model__options": {"a": 1}}, "settings of ratio stand in section `model`"),
        ({"model__kind": "pair", "model__alpha": 0.2}, "settings of `model.kind` ratio, not of pair"),
        ({"model__kind": "pair", "detector__spikes": False}, "`detector.spikes` has no effect for `model.kind` pair"),
        ({"model__kind": "pair", "model__options": 3}, "is a table of the kind's settings; set one of them"),
        ({"model__kind": "pair", "reference__delta": 0.1}, "no effect unless `pairing.mode` is reference"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(changes: dict[str, Any], words: str) -> None:
    assert words in problem_of(**changes)


def test_gaps_are_event_time() -> None:
    files = {"kind": "files", "files": {"inputs": "-"}}
    made = {**values(model__kind="pair", pairing__max_gap="1m"), "bus": files}
    with pytest.raises(ConfigError, match=r"lines of files have none of their own: bind `input\.timestamp`"):
        from_dict(made)


def test_a_kind_called_as_a_section_is_gets_its_own_options(tmp_path: Path) -> None:
    register(tmp_path, "kinds-like-sections", {"gate": "some_kinds:PAIR"})
    config = config_of(input__x=["a", "b"], model__kind="gate", model__options={"depth": 2})
    with pytest.raises(ConfigError, match=r"refused \['depth'\]"):
        app.build_bank(config)


def test_a_gap_below_a_millisecond_is_a_limit_none_the_less() -> None:
    changes = {"model__kind": "koopman", "pairing__mode": "lag"}
    prints = [app.build_bank(config_of(**changes, pairing__max_gap=gap)).fingerprint for gap in (0, "400us", "1ms")]
    assert prints[0] != prints[1] == prints[2]


def test_options_of_a_package_are_taken_as_they_are() -> None:
    made = load(
        None,
        environment={"KSTREAM_WORKER__MODEL__OPTIONS__RATE": "0.5"},
        settings=[
            "app.id=a", "bus.kafka.bootstrap_servers=h:1", "input.topic=t", "input.y=[v, w]", "model.kind=mapping",
            "input.x=u", "model.options.sizes=[1, 2]",
        ],
    )  # fmt: skip
    assert made.model.options == {"rate": 0.5, "sizes": [1, 2]}
    with pytest.raises(ConfigError, match=r"`model\.kind` mapping: refused \['rate', 'sizes'\] for \('u',\) and"):
        app.build_bank(made)


def test_a_lagged_model_is_built_for_pairs_of_the_sample() -> None:
    with pytest.raises(ConfigError, match=r"for \('temp', 'flow'\) and \('temp', 'flow'\)"):
        app.build_bank(config_of(model__kind="pair"))


def test_kind_and_options_belong_to_the_identity_of_state() -> None:
    ratio = app.state_identity(config_of())
    assert ratio.pipeline == app.state_identity(config_of(detector__arl=1000.0)).pipeline
    short, long = (config_of(model__kind="forecast", model__options={"memory": memory}) for memory in (10, 20))
    identities = [app.state_identity(config) for config in (short, long)]
    assert len({identity.pipeline for identity in (ratio, *identities)}) == 3
    assert len({identity.bank for identity in (ratio, *identities)}) == 3
    assert app.state_identity(short) == identities[0]


def test_built_in_kinds_are_known_to_the_configuration_as_they_are() -> None:
    assert set(KINDS) == set(BUILT_IN) - {"ratio"}
    for name, kind in KINDS.items():
        assert (kind.sides, kind.same_space, kind.missing) == facts(name)
        assert name in Config.__struct_fields__
