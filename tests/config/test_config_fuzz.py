from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kstream_worker.config import Config, ConfigProblems, from_dict, load
from kstream_worker.config.fields import fields_of
from kstream_worker.config.reference import sections

SECRET = "correct-horse-battery"
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.just(SECRET),
    st.sampled_from(["1s", "16MiB", "none", "kafka", "[a, b]", "[", '"', "1e999", "1" * 30, "{"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
SECTIONS = dict(sections())
KEYS = [(path, name) for path, section in SECTIONS.items() for name in fields_of(section)]


def outcome(build: Callable[[], Config]) -> Config | str:
    """The configuration, or what is wrong with it; any other exception is a fault."""
    try:
        return build()
    except ConfigProblems as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=6))
def test_any_value_of_any_key_is_taken_or_refused(given_values: list[tuple[tuple[str, str], Any]]) -> None:
    values: dict[str, Any] = {
        "app": {"id": "a"},
        "bus": {"kafka": {"bootstrap_servers": "h:1"}},
        "input": {"topic": "t", "y": "v"},
    }
    for (path, name), value in given_values:
        node = values
        for part in path.split("."):
            below = node.setdefault(part, {})
            node = below if isinstance(below, dict) else {}
        node[name] = value
    found = outcome(lambda: from_dict(values))
    if isinstance(found, Config):
        assert found.pairing.mode in {"explicit", "stream", "reference"}
        assert found.output.estimates
    else:
        assert found
        assert SECRET not in found


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(KEYS), st.text(max_size=20) | st.sampled_from(["1s", "[a", '["a"]', "none", "nan", "1_0", "-", "{"])
)
def test_any_text_of_any_variable_is_taken_or_refused(key: tuple[str, str], text: str) -> None:
    base = ["app.id=a", "bus.kafka.bootstrap_servers=h:1", "input.topic=t", "input.y=v"]
    name = "KSTREAM_WORKER__" + "__".join([*key[0].split("."), key[1]]).upper()
    found = outcome(lambda: load(None, environment={name: text}, settings=base))
    if isinstance(found, str) and key != ("bus", "kind"):  # which makes other keys needed
        assert f"`{'.'.join(key)}`" in found
