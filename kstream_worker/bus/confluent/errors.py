"""The one place that says what an error of librdkafka means for the worker.

Rejoin       the group went on without this member
Fatal        another process took this identity, or records to be read are gone
ConfigError  credentials, rights, names, sizes, versions: trying again cannot help
Retry        all else: brokers that are away, elect a leader or are slow
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaError, KafkaException

from kstream_worker.bus.common import reasons
from kstream_worker.errors import ConfigError, Fatal, KstreamError, Rejoin, Retry

Meaning = tuple[type[KstreamError], str]

LOGIN = "the broker does not accept the login; check security.protocol, sasl.mechanism, sasl.username and sasl.password"
TLS = "no TLS connection could be made; check security.protocol, the ssl. settings and the name in bootstrap_servers"
CODEC = "the records are compressed in a way that this librdkafka cannot read"
SETTING = "a client setting is not acceptable"


# Once fenced, a consumer says only that it failed for good, with this text of the reason.
INSTANCE_FENCED = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()

# Where offsets are not to be reset, the loss of records is told as a reset that cannot be, with this text.
TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()


def _each(codes: Iterable[int], made: type[KstreamError], reason: str) -> dict[int, Meaning]:
    return dict.fromkeys(codes, (made, reason))


E = KafkaError
MEANINGS: dict[int, Meaning] = {
    **_each(
        (
            E.ILLEGAL_GENERATION,
            E.UNKNOWN_MEMBER_ID,
            E.REBALANCE_IN_PROGRESS,
            E.FENCED_MEMBER_EPOCH,
            E.STALE_MEMBER_EPOCH,
            E._ASSIGNMENT_LOST,
        ),
        Rejoin,
        reasons.NOT_A_MEMBER,
    ),
    **_each((E.FENCED_INSTANCE_ID, E.UNRELEASED_INSTANCE_ID), Fatal, reasons.INSTANCE_FENCED),
    **_each((E._FENCED, E.PRODUCER_FENCED, E.TRANSACTION_COORDINATOR_FENCED), Fatal, reasons.PRODUCER_FENCED),
    **_each((E.OFFSET_OUT_OF_RANGE, E._AUTO_OFFSET_RESET, E._NO_OFFSET), Fatal, reasons.OUT_OF_RANGE),
    **_each((E._LOG_TRUNCATION,), Fatal, reasons.LOST_NEWEST),
    **_each((E.INVALID_MSG, E._BAD_MSG, E._BAD_COMPRESSION, E._UNDERFLOW, E._UNKNOWN_PROTOCOL), Fatal, reasons.CORRUPT),
    **_each(
        (E._AUTHENTICATION, E.SASL_AUTHENTICATION_FAILED, E.UNSUPPORTED_SASL_MECHANISM, E.ILLEGAL_SASL_STATE),
        ConfigError,
        LOGIN,
    ),
    **_each((E.TOPIC_AUTHORIZATION_FAILED,), ConfigError, reasons.TOPIC_RIGHT),
    **_each((E.GROUP_AUTHORIZATION_FAILED,), ConfigError, reasons.GROUP_RIGHT),
    **_each((E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,), ConfigError, reasons.TRANSACTIONAL_RIGHT),
    **_each((E.CLUSTER_AUTHORIZATION_FAILED, E.DELEGATION_TOKEN_AUTHORIZATION_FAILED), ConfigError, reasons.SOME_RIGHT),
    **_each((E.MSG_SIZE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE), ConfigError, reasons.too_large("message.max.bytes")),
    **_each((E.INVALID_TIMESTAMP, E.INVALID_RECORD), ConfigError, reasons.REFUSED_RECORD),
    **_each((E.UNSUPPORTED_COMPRESSION_TYPE,), ConfigError, CODEC),
    **_each((E.INCONSISTENT_GROUP_PROTOCOL,), ConfigError, reasons.OTHER_GROUP),
    **_each(
        (E.UNSUPPORTED_VERSION, E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E._UNSUPPORTED_FEATURE),
        ConfigError,
        reasons.OLD_BROKER,
    ),
    **_each((E._UNKNOWN_PARTITION,), ConfigError, "the partition does not exist; see the number of partitions"),
    **_each((E._SSL,), ConfigError, TLS),
    **_each((E._FS,), ConfigError, reasons.BAD_FILE),
    **_each(
        (
            E._INVALID_ARG,
            E._NOT_CONFIGURED,
            E.TOPIC_EXCEPTION,
            E.INVALID_GROUP_ID,
            E.INVALID_SESSION_TIMEOUT,
            E.INVALID_TRANSACTION_TIMEOUT,
            E.GROUP_MAX_SIZE_REACHED,
            E.INVALID_CONFIG,
            E.INVALID_PARTITIONS,
            E.INVALID_REPLICATION_FACTOR,
            E.POLICY_VIOLATION,
            E.OFFSET_METADATA_TOO_LARGE,
            E.INVALID_COMMIT_OFFSET_SIZE,
        ),
        ConfigError,
        reasons.BAD_SETTING,
    ),
    **_each(
        (E.UNKNOWN_TOPIC_OR_PART, E._UNKNOWN_TOPIC, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID, E._NOENT),
        Retry,
        reasons.TOPIC_AWAY,
    ),
    **_each(
        (E.INVALID_PRODUCER_EPOCH, E.INVALID_TXN_STATE, E.INVALID_PRODUCER_ID_MAPPING, E.UNKNOWN_PRODUCER_ID, E._STATE),
        Retry,
        reasons.ENDED_BY_BROKER,
    ),
    **_each((E._TRANSPORT, E._ALL_BROKERS_DOWN, E._RESOLVE), Retry, reasons.UNREACHABLE),
    **_each(
        (E._TIMED_OUT, E._MSG_TIMED_OUT, E._TIMED_OUT_QUEUE, E._WAIT_COORD, E.REQUEST_TIMED_OUT), Retry, reasons.LATE
    ),
}


def classify(error: BaseException, doing: str) -> KstreamError:
    """The error of the worker's own tree that stands for an error of the client.

    Args:
        error: what the client raised (or an `OSError`); one of our own errors comes back as it is.
        doing: what was being done, for the message: "reading sensors[3]", "committing".

    Returns:
        An error to be raised `from` the client's. `Fatal` with the class's name where no rule knows it.
    """
    if isinstance(error, KstreamError):
        return error
    if isinstance(error, KafkaException):
        return meaning_of(cause_of(error), doing)
    if isinstance(error, BufferError):
        return Retry(f"{doing}: the client's own queue is full ({error})")
    if isinstance(error, (ConnectionError, TimeoutError)):
        return Retry(f"{doing}: {reasons.UNREACHABLE} ({error})")
    return Fatal(f"{doing}: unexpected {type(error).__name__}: {error}")


def meaning_of(error: KafkaError, doing: str) -> KstreamError:
    """`classify` for the error objects that come in messages and callbacks."""
    made, reason = MEANINGS.get(error.code(), (Retry, reasons.PASSING))
    if is_truncation(error):
        made, reason = Fatal, reasons.LOST_NEWEST
    elif error.code() == E._FATAL and INSTANCE_FENCED in error.str():
        made, reason = Fatal, reasons.INSTANCE_FENCED
    elif made is Retry and (error.fatal() or error.code() == E._FATAL):
        made, reason = Fatal, "the client cannot go on"
    return made(f"{doing}: {reason} ({error.name()}: {error.str().strip()})")


def is_truncation(error: KafkaError) -> bool:
    """Whether a log has lost records that were read."""
    return error.code() == E._AUTO_OFFSET_RESET and TRUNCATED in error.str()


def cause_of(error: KafkaException) -> KafkaError:
    """The error object inside an exception."""
    inner = error.args[0] if error.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))


@contextlib.contextmanager
def translate(doing: str) -> Iterator[None]:
    """Errors of the client leave this block as errors of the worker."""
    try:
        yield
    except KafkaException as error:
        raise classify(error, doing) from error
