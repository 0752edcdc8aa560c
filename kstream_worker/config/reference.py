"""The reference of all keys, written from the sections themselves.

`python -m kstream_worker.config.reference > docs/configuration.md` writes the page; a test holds the page to the code.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import msgspec

from kstream_worker.config.fields import Field, fields_of
from kstream_worker.config.schema import Config
from kstream_worker.config.values import expected, limits

_INTRODUCTION = """\
# Configuration

One TOML or YAML file (`kstream-worker run --config FILE`), environment variables, and flags. A flag goes before the
environment, the environment before the file.

- **Environment:** `KSTREAM_WORKER__SECTION__KEY`, sections joined by two underscores, for example
  `KSTREAM_WORKER__DETECTOR__ARL=100000` or `KSTREAM_WORKER__BUS__KAFKA__COMMON__SECURITY_PROTOCOL=SASL_SSL`.
- **Files with a value in them** (mounted secrets): add `_FILE`, for example
  `KSTREAM_WORKER__BUS__KAFKA__COMMON__SASL_PLAIN_PASSWORD_FILE=/run/secrets/kafka-password`.
- **Flags:** `--set section.key=value`, as often as needed, and named flags, see `kstream-worker run --help`.
- **Lists** in environment and flags: `["a", "b"]`, or one text for a list of one.
- **Durations** are numbers of seconds or text such as `200ms`, `1s`, `5m`, `2h`, `1d`. **Sizes** are numbers of bytes
  or text such as `512KiB`, `16MiB`, `1MB`.
- **Client settings** stand in `bus.kafka.common`, `.consumer` and `.producer` under the names of the client library.
  Settings that exactly-once processing depends on are fixed and refused there.
- **Secrets** (names with password, secret, token and the like) never appear in logs or messages.

Unknown keys, wrong types and values out of bounds are refused at start with exit code 78, all at once, each with its
place and the remedy; then, once there are none, contradictions between keys; then what the client of the bus refuses.
`kstream-worker check` says the same without running anything. Variables whose name does not begin with
`KSTREAM_WORKER__` (two underscores) are not looked at.
"""


def sections(section: type[msgspec.Struct] = Config, above: str = "") -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """All sections that have keys of their own, with their paths, in order."""
    for name, field in fields_of(section).items():
        if field.section is not None:
            if any(below.section is None for below in fields_of(field.section).values()):
                yield above + name, field.section
            yield from sections(field.section, f"{above}{name}.")


def _takes(field: Field) -> str:
    if field.table is not None:
        return field.table.what
    if not field.unit:
        return expected(field)
    bounds = limits(field)
    return f"a {field.unit}" + (f", {bounds}" if bounds else "")


def _default(field: Field) -> str:
    if field.required:
        return "**required**"
    if field.default in ("", (), {}):
        return ""
    return f"`{field.show(field.default)}`"


def table(section: type[msgspec.Struct]) -> str:
    """The Markdown table of one section's own keys."""
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for name, field in fields_of(section).items():
        if field.section is None:
            lines.append(f"| `{name}` | {_takes(field)} | {_default(field)} | {field.meta.description} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page in Markdown."""
    parts = [_INTRODUCTION]
    for path, section in sections():
        parts.append(f"\n## `{path}`\n\n{inspect.getdoc(section)}\n\n{table(section)}")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
