"""Fields bound by path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstream_worker.codec.binding import Binding, parse_path, path_text
from kstream_worker.errors import ConfigError

NAMES = st.text(min_size=1, max_size=8)


@given(st.lists(NAMES, min_size=1, max_size=4).map(tuple))
def test_a_path_is_read_back_from_its_text(path: tuple[str, ...]) -> None:
    assert parse_path("input.y", path_text(path)) == path


def test_dots_and_backslashes_within_a_name_are_escaped() -> None:
    assert parse_path("input.y", r"values.room\.temp.a\\b") == ("values", "room.temp", "a\\b")


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", ".a", "a\\", "a\\n"])
def test_a_malformed_path_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"input\.key"):
        parse_path("input.key", text)


def test_names_are_the_last_part_of_a_path_or_all_of_it_where_ambiguous() -> None:
    assert Binding.of(y=["values.temp", "values.flow"]).names == ("temp", "flow")
    assert Binding.of(y=["a.t", "b.t", "b.flow"]).names == ("a.t", "b.t", "flow")


def test_array_features_are_numbered() -> None:
    assert Binding.of(y="values.acc", dims=3).names == ("acc[0]", "acc[1]", "acc[2]")
    assert Binding.of(y="values.acc", dims=1).names == ("acc[0]",)


def test_a_single_path_without_a_length_is_one_number() -> None:
    binding = Binding.of(y="values.temp")
    assert (binding.y.dims, binding.y.is_array, binding.names) == (1, False, ("temp",))


def test_a_single_bound_side_is_the_live_one() -> None:
    assert Binding.of(x=["a", "b"]) == Binding.of(y=["a", "b"])
    assert Binding.of(x=["a"], y=()).x is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no input is bound"),
        ({"x": ["a"], "y": ["b", "c"]}, "the same"),
        ({"y": ["a", "a"]}, "twice"),
        ({"y": ["a", "b"], "dims": 3}, r"lists 2 paths, but input\.dims is 3"),
        ({"y": ["a", "a.b"]}, "passes through the bound field 'a'"),
        ({"y": ["a.b"], "timestamp": "a"}, "passes through"),
        ({"y": ["a"], "timestamp": "a"}, "two kinds"),
        ({"y": ["k"], "key": "k"}, "two kinds"),
        ({"x": ["a", "b", "c"], "y": "a", "dims": 3}, "two kinds"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Binding.of(**options)  # type: ignore[arg-type]


def test_both_sides_may_read_the_same_field() -> None:
    binding = Binding.of(x=["a", "b"], y=["a", "c"])
    assert (binding.x is not None and binding.x.names, binding.y.names) == (("a", "b"), ("a", "c"))
