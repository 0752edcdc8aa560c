"""One value: read according to its key's type. Errors name kinds and bounds, and never quote text."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import operator
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import yaml

from kstream_worker.config.fields import Field
from kstream_worker.config.redact import is_secret
from kstream_worker.config.tree import Given
from kstream_worker.config.units import DURATION_FORMS, SIZE_FORMS, parse_duration, parse_size

_TEXTS = tuple[str, ...]
_BOUNDS: tuple[tuple[str, str, Callable[[Any, float], bool]], ...] = (
    ("ge", "at least", operator.ge),
    ("gt", "above", operator.gt),
    ("le", "at most", operator.le),
    ("lt", "below", operator.lt),
)
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9_]*)")
_FRACTION = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DECIMAL = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def kind_of(value: object) -> str:
    """The kind of a value, in words."""
    kinds: list[tuple[type | tuple[type, ...], str]] = [
        (bool, "true or false"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "text"),
        ((list, tuple), "a list"),
        (dict, "a table"),
        ((date, datetime), "a date"),
    ]
    return next((words for kind, words in kinds if isinstance(value, kind)), "nothing")


def limits(field: Field) -> str:
    """The bounds of a key, in words; empty where there are none."""
    return " and ".join(f"{words} {field.show(_bound(field, name))}" for name, words, _ in _BOUNDS if _has(field, name))


def expected(field: Field) -> str:
    """What a key takes, in words."""
    if field.choices:
        what = "one of " + ", ".join(field.choices)
    elif field.unit:
        what = DURATION_FORMS if field.unit == "duration" else SIZE_FORMS
    else:
        names: dict[Any, str] = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            str: "text",
            _TEXTS: "a list of texts",
        }
        what = " or ".join(names[kind] for kind in field.kinds)
    bounds = limits(field)
    return what + (f", {bounds}" if bounds else "") + (", or none" if field.optional else "")


def _has(field: Field, bound: str) -> bool:
    return getattr(field.meta, bound) is not None


def _bound(field: Field, bound: str) -> int | float:
    value: int | float = getattr(field.meta, bound)
    return float(value) if field.unit == "duration" else value


def _whole(value: object, text: bool) -> int | None:
    if text and isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: object, text: bool) -> float | None:
    if text and isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _truth(value: object, text: bool) -> bool | None:
    if text and isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _plain(value: object, text: bool) -> str | None:
    del text
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if isinstance(value, str) else None


def _texts(value: object, text: bool) -> tuple[str, ...] | None:
    if isinstance(value, str):
        if not (text and value.lstrip().startswith("[")):
            return (value,) if value else ()
        value = _flow(value)
    if isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    return None


def _paths(value: object, text: bool) -> str | tuple[str, ...] | None:
    if isinstance(value, str) and not (text and value.lstrip().startswith("[")):
        return value
    return _texts(value, text)


def _quantity(parse: Callable[[str | int | float], float]) -> Callable[[object, bool], float | None]:
    def read(value: object, text: bool) -> float | None:
        del text
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                return parse(value)
        return None

    return read


_READERS: dict[Any, Callable[[object, bool], object]] = {
    (bool,): _truth,
    (int,): _whole,
    (float,): _real,
    (str,): _plain,
    (_TEXTS,): _texts,
    (str, _TEXTS): _paths,
    "duration": _quantity(parse_duration),
    "size": _quantity(parse_size),
}


def coerce(field: Field, given: Given) -> object:
    """The value of a key.

    Raises:
        ValueError: another kind, no such choice, or out of bounds; says what was expected.
    """
    value = given.value
    if field.optional and (value is None or (value == "none" and str not in field.kinds)):
        return None
    read = _READERS[field.unit or field.kinds]
    result = read(value, given.text)
    if result is None:
        quotes = "; put it in quotes" if str in field.kinds and isinstance(value, bool | int | float) else ""
        raise ValueError(f"expected {expected(field)}, got {_got(value)}{quotes}")
    if field.choices and result not in field.choices:
        raise ValueError(f"expected {expected(field)}{_nearest_choice(field, str(result))}")
    if not all(holds(result, _bound(field, name)) for name, _, holds in _BOUNDS if _has(field, name)):
        raise ValueError(f"expected {expected(field)}, got {field.show(result)}")
    return result


def _got(value: object) -> str:
    if isinstance(value, list | tuple):
        kinds = sorted({kind_of(item) for item in value} - {"text"})
        return f"a list with {' and '.join(kinds)} in it" if kinds else "a list with empty text in it"
    return "empty text" if value == "" else kind_of(value)


def _nearest_choice(field: Field, text: str) -> str:
    near = difflib.get_close_matches(text.lower(), field.choices, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ", got another text"


def _flow(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return None


_WORDS: dict[str, object] = {"true": True, "false": False, "none": None, "null": None}


def _interpreted(text: str) -> object:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _FRACTION.fullmatch(text):
        return float(text)
    if text[:1] == '"':
        with contextlib.suppress(ValueError):
            return json.loads(text)
    parsed = _flow(text) if text[:1] == "[" else None
    return parsed if isinstance(parsed, list) else text


def setting_value(name: str, given: Given) -> object:
    """A client setting: as the file has it; from raw text, a number, true, false, none, a list or the text itself.

    Secrets are never interpreted: a password of digits stays text. Quotes make anything text.
    """
    if not given.text or not isinstance(given.value, str) or is_secret(name):
        return given.value
    return _interpreted(given.value)
