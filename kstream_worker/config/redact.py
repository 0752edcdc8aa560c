"""Which settings are secret, and how they are kept out of everything that people read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|credential|jaas|private[_.]?key|key[_.]pem|api[_.]?key|"
    r"(access|auth|oauth|bearer|sasl)\w*[_.]token",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds something that must never be shown."""
    return _SECRET_NAME.search(name) is not None


def redact(value: object, name: str = "") -> object:
    """A copy in which the value of every secret name is `***`, at any depth."""
    if isinstance(value, Mapping):
        return {key: redact(item, str(key)) for key, item in value.items()}
    if name and is_secret(name) and value not in (None, ""):
        return HIDDEN
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def secret_values(settings: Mapping[str, object]) -> Iterator[str]:
    """The texts that must not appear anywhere, so that logs can be searched for them."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from secret_values(value)
        elif is_secret(name) and value not in (None, ""):
            yield str(value)


class FreeTable(dict[str, object]):
    """Settings under names that others chose; secrets do not show in `repr`, `str` or `format`."""

    what = "a table of settings"

    def __repr__(self) -> str:
        return repr(redact(self))

    __str__ = __repr__


class ClientSettings(FreeTable):
    """Settings of a Kafka client under their native names."""

    what = "a table of client settings"


class ModelOptions(FreeTable):
    """Settings of a model of another package."""

    what = "a table of the kind's settings"
