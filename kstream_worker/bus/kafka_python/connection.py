"""The client's network layer, made to say why it cannot connect, and to leave nothing behind when it cannot.

As it comes, a client whose login is refused goes on trying until its bootstrap time-out and then speaks of time alone,
and its constructor leaves a thread and sockets behind when it fails.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from typing import Any

from kafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from kstream_worker.errors import ConfigError

HOPELESS = (
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    IllegalSaslStateError,
    ssl.SSLCertVerificationError,
)

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# At DEBUG these write passwords: in the settings, and in the bytes of the login.
LOGGERS_WITH_SECRETS = (
    "kafka.admin.client",
    "kafka.consumer.group",
    "kafka.net.connection",
    "kafka.producer.kafka",
    "kafka.protocol.parser",
)


def above_debug(record: logging.LogRecord) -> bool:
    """A filter for these loggers; unlike a level it leaves what others configure as it is."""
    return record.levelno > logging.DEBUG


class WatchfulManager(KafkaConnectionManager):
    """Connections that remember why the last one failed; a refused login or certificate fails at once."""

    _conns: dict[Any, Any]
    _net: NetworkSelector

    def __init__(self, net: NetworkSelector, **configs: Any) -> None:
        self._last_failure: BaseException | None = None
        self._refusals: dict[Any, BaseException] = {}
        super().__init__(net, **configs)

    def get_connection(self, node_id: Any, *args: Any, **options: Any) -> Any:
        """A connection, whose failure will be noted; raises once what a retry cannot mend."""
        refusal = self._refusals.pop(node_id, None)
        if refusal is not None:
            raise refusal
        known = self._conns.get(node_id)
        connection = super().get_connection(node_id, *args, **options)
        if connection is not known:
            connection.init_future.add_errback(lambda error: self._note(node_id, error))
            connection.close_future.add_errback(lambda error: self._note(node_id, error))
        return connection

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:
        """Connect to any broker.

        Raises:
            KafkaError: why that is not possible; all threads and sockets are gone then.
        """
        try:
            super().bootstrap(timeout_ms, refresh)
        except BaseException as error:
            self.close()
            self._net.close()
            if isinstance(error, KafkaTimeoutError):
                raise self._unreachable() from self._last_failure
            raise

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """A transport that hands on what came before the end of the stream: it may say why the broker hangs up."""
        transport = await super()._build_transport(node, timeout_at)  # type: ignore[misc]  # private
        receive = transport._sock_recv

        def receive_all() -> tuple[bytes, BaseException | None]:
            data, error = receive()
            return data, None if data else error  # the error comes again at the next call

        transport._sock_recv = receive_all
        return transport

    def _note(self, node_id: Any, error: BaseException) -> None:
        inner = error.__context__  # the client wraps what TLS says into a text
        cause = inner if isinstance(inner, ssl.SSLError) else error
        self._last_failure = cause
        if isinstance(cause, HOPELESS):
            self._refusals[node_id] = cause

    def _unreachable(self) -> BaseException:
        last = self._last_failure
        if isinstance(last, ssl.SSLError):
            return last
        said = "" if last is None else f"; the last attempt ended with: {last}"
        if "disconnected" in said:
            said += " (so does a broker that wants another security_protocol)"
        return KafkaConnectionError(f"nothing usable answers at {self.cluster.config['bootstrap_servers']}{said}")


class WatchfulClient(KafkaNetClient):
    """What consumers, producers and admin clients take as their `kafka_client`."""

    def __init__(self, **configs: Any) -> None:
        _require_login(configs)
        for name in LOGGERS_WITH_SECRETS:
            logging.getLogger(name).addFilter(above_debug)
        net = NetworkSelector(**configs)
        super().__init__(net=net, manager=WatchfulManager(net, **configs), **configs)


def _require_login(configs: Mapping[str, Any]) -> None:
    """Without a password the client fails deep inside each connection, which would look like a broker that is away.

    Raises:
        ConfigError: the mechanism needs a name or a password that is not given.
    """
    if "SASL" not in str(configs.get("security_protocol")) or configs.get("sasl_mechanism") not in PASSWORD_MECHANISMS:
        return
    missing = [name for name in ("sasl_plain_username", "sasl_plain_password") if not configs.get(name)]
    if missing:
        raise ConfigError(
            f"bus.kafka.common.{missing[0]} is missing: {configs['sasl_mechanism']} wants a name and a password. "
            f"Set it, or let KSTREAM_WORKER__BUS__KAFKA__COMMON__{missing[0].upper()}_FILE name a file that holds it"
        )
