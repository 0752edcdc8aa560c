"""Which fields of a record feed the model: paths by name, never by position in an object.

A path names nested objects from the outside in, separated by dots: `values.temp`. A dot that belongs to a name is
written `\\.`, a backslash `\\\\`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kstream_worker.errors import ConfigError

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair: `d` numbers, either each under its own path or as one array.

    Attributes:
        paths: d paths to numbers, or one path to an array.
        dims: d.
        is_array: whether `paths` is one path to an array of d numbers.
    """

    paths: tuple[Path, ...]
    dims: int
    is_array: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """The d places in a record, for messages about it: `values.temp`, or `values.acc[0]` in an array."""
        texts = tuple(map(path_text, self.paths))
        return tuple(f"{texts[0]}[{i}]" for i in range(self.dims)) if self.is_array else texts

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d features, for reports: the last part of a path, or all of it where that is ambiguous."""
        short = feature_names(self.paths)
        return tuple(f"{short[0]}[{i}]" for i in range(self.dims)) if self.is_array else short


@dataclass(frozen=True, slots=True)
class Binding:
    """The bound fields of a record.

    Attributes:
        x: the reference side; None when records are one-sided.
        y: the live side.
        timestamp: path to the event time: a number of milliseconds since the epoch, or ISO 8601 text (UTC where it
            names no offset); None for the bus's own record time.
        key: path to the entity key, text or an integer; None for the record's key, which also serves where the field is
            missing or null.
        missing: whether numbers of y may be missing or null; they are NaN then.
    """

    x: Side | None
    y: Side
    timestamp: Path | None = None
    key: Path | None = None
    missing: bool = False

    @classmethod
    def of(
        cls,
        *,
        x: str | Sequence[str] | None = None,
        y: str | Sequence[str] | None = None,
        dims: int | None = None,
        timestamp: str | None = None,
        key: str | None = None,
        same_space: bool = True,
        missing: bool = False,
    ) -> Binding:
        """Read a binding from its configured form; a single bound side is the live one, whichever it was called.

        Args:
            x: a list of paths to numbers, or one path: to a number, or with `dims` to an array.
            y: likewise.
            dims: length of the arrays.
            timestamp: path to the event time.
            key: path to the entity key.
            same_space: whether both sides must have equally many numbers.
            missing: whether numbers of y may be missing or null.

        Nothing is bound by None, an empty text or an empty list.

        Raises:
            ConfigError: no side, a malformed path, a length that does not fit, or paths that exclude one another.
        """
        sides = [_side(name, value, dims) for name, value in (("x", x), ("y", y)) if value]
        if not sides:
            raise ConfigError("no input is bound: set input.y (and input.x for pairs) to the paths of the numbers")
        if same_space and len(sides) == 2 and sides[0].dims != sides[1].dims:
            raise ConfigError(
                f"input.x has {sides[0].dims} numbers and input.y {sides[1].dims}: both sides of a pair need the same"
            )
        binding = cls(
            x=sides[0] if len(sides) == 2 else None,
            y=sides[-1],
            timestamp=parse_path("input.timestamp", timestamp) if timestamp else None,
            key=parse_path("input.key", key) if key else None,
            missing=missing,
        )
        _refuse_conflicts(binding)
        return binding

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d features of the live side."""
        return self.y.names

    def fields(self) -> Iterator[tuple[str, Path]]:
        """All bound paths with the option that bound each."""
        for option, side in (("input.x", self.x), ("input.y", self.y)):
            for path in () if side is None else side.paths:
                yield option, path
        for option, field_path in (("input.timestamp", self.timestamp), ("input.key", self.key)):
            if field_path is not None:
                yield option, field_path


def parse_path(option: str, text: str) -> Path:
    r"""Split a path at its dots; `\.` is a dot and `\\` a backslash within a name.

    Raises:
        ConfigError: an empty name, or a backslash before anything else.
    """
    names, name, rest = [], "", iter(text)
    for char in rest:
        if char == "\\":
            escaped = next(rest, "")
            if escaped not in {".", "\\"} or not escaped:
                raise ConfigError(f"{option}: {text!r}: after a backslash only a dot or a backslash may follow")
            name += escaped
        elif char == ".":
            names.append(name)
            name = ""
        else:
            name += char
    names.append(name)
    if "" in names:
        raise ConfigError(f"{option}: {text!r} has an empty name (a dot within a name is written \\.)")
    return tuple(names)


def path_text(path: Path) -> str:
    """The written form of a path, the inverse of `parse_path`."""
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def feature_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """The last part of each path, or the whole path where two paths end alike."""
    seen = Counter(path[-1] for path in paths)
    return tuple(path[-1] if seen[path[-1]] == 1 else path_text(path) for path in paths)


def _side(name: str, value: str | Sequence[str], dims: int | None) -> Side:
    option = f"input.{name}"
    if isinstance(value, str):
        return Side((parse_path(option, value),), dims or 1, is_array=dims is not None)
    if dims is not None and dims != len(value):
        raise ConfigError(f"{option} lists {len(value)} paths, but input.dims is {dims}")
    paths = tuple(parse_path(option, text) for text in value)
    twice = [path_text(path) for path, n in Counter(paths).items() if n > 1]
    if twice:
        raise ConfigError(f"{option} names {twice[0]!r} twice")
    return Side(paths, len(paths), is_array=False)


def _refuse_conflicts(binding: Binding) -> None:
    """A field has one type: no path may pass through another bound field, nor be bound as two kinds of thing."""
    leaves: dict[Path, str] = {}
    for option, path in binding.fields():
        kind = option if option in {"input.timestamp", "input.key"} else "number"
        if leaves.setdefault(path, kind) != kind or _is_mixed(binding, path):
            raise ConfigError(f"{option}: {path_text(path)!r} is bound as two kinds of field")
    for option, path in binding.fields():
        inner = next((path[:n] for n in range(1, len(path)) if path[:n] in leaves), None)
        if inner is not None:
            raise ConfigError(f"{option}: {path_text(path)!r} passes through the bound field {path_text(inner)!r}")


def _is_mixed(binding: Binding, path: Path) -> bool:
    """Whether one side takes the path as a number and the other as an array."""
    kinds = {side.is_array for side in (binding.x, binding.y) if side is not None and path in side.paths}
    return len(kinds) > 1
