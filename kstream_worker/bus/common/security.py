"""Logins and certificates that a connection would not use: the clients say nothing, and talk in the clear."""

from __future__ import annotations

from collections.abc import Iterator

from kstream_worker.bus.common.tables import PATH, Settings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOGIN = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_username", "sasl_password")
CERTIFICATES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_ca_location", "ssl_certificate_location")


def unused(settings: Settings) -> Iterator[str]:
    """What is given for a security that `security_protocol` does not switch on.

    Args:
        settings: settings of consumer and producer alike, under the names of either client.
    """
    named = {name.replace(".", "_"): name for name, value in settings.items() if value is not None}
    key = named.get("security_protocol", "security_protocol")
    protocol = str(settings.get(key) or PROTOCOLS[0]).upper()
    key = key if key in settings else _spelled("security_protocol", settings)
    for names, part, does in ((LOGIN, "SASL", "log in"), (CERTIFICATES, "SSL", "use TLS")):
        given = [named[name] for name in names if name in named]
        if given and part not in protocol:
            wanted = " or ".join(choice for choice in PROTOCOLS if part in choice)
            yield (
                f"`{PATH}.common.{given[0]}` is set, but {key} is {protocol}, which does not {does}: "
                f"set `{PATH}.common.{key}` to {wanted}, or leave {given[0]} out"
            )


def _spelled(name: str, settings: Settings) -> str:
    """The name as the client of these settings spells it."""
    return name.replace("_", ".") if any("." in other for other in settings) else name
