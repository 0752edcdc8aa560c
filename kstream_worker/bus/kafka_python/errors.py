"""The one place that says what an error of the client means for the worker.

    Rejoin       the group went on without this member
    Fatal        another process took this identity, or records to be read are gone
    ConfigError  credentials, rights, names, sizes, versions: trying again cannot help
    Retry        all else: brokers that are away, elect a leader or are slow

The order is that of `RULES`; the first class that fits decides.
"""

from __future__ import annotations

import contextlib
import re
import ssl
from collections.abc import Iterator
from typing import Any

from kafka import errors as client

from kstream_worker.bus.common import reasons
from kstream_worker.errors import ConfigError, Fatal, KstreamError, Rejoin, Retry

Rule = tuple[type[KstreamError], tuple[type[BaseException], ...], str]

RULES: tuple[Rule, ...] = (
    (
        Rejoin,
        (
            client.CommitFailedError,
            client.IllegalGenerationError,
            client.UnknownMemberIdError,
            client.RebalanceInProgressError,
            client.FencedMemberEpochError,
            client.StaleMemberEpochError,
        ),
        reasons.NOT_A_MEMBER,
    ),
    (
        Fatal,
        (client.FencedInstanceIdError, client.UnreleasedInstanceIdError),
        reasons.INSTANCE_FENCED,
    ),
    (
        Fatal,
        (client.ProducerFencedError, client.TransactionCoordinatorFencedError),
        reasons.PRODUCER_FENCED,
    ),
    (
        Fatal,
        (client.LogTruncationError,),
        reasons.LOST_NEWEST,
    ),
    (
        Fatal,
        (client.OffsetOutOfRangeError, client.NoOffsetForPartitionError),
        reasons.OUT_OF_RANGE,
    ),
    (
        Fatal,
        (client.CorruptRecordError, client.KafkaProtocolError),
        reasons.CORRUPT,
    ),
    (
        ConfigError,
        (client.SaslAuthenticationFailedError, client.UnsupportedSaslMechanismError, client.IllegalSaslStateError),
        "the broker does not accept the login; check security_protocol, sasl_mechanism, user and password",
    ),
    (
        ConfigError,
        (client.TopicAuthorizationFailedError,),
        reasons.TOPIC_RIGHT,
    ),
    (
        ConfigError,
        (client.GroupAuthorizationFailedError,),
        reasons.GROUP_RIGHT,
    ),
    (
        ConfigError,
        (client.TransactionalIdAuthorizationFailedError,),
        reasons.TRANSACTIONAL_RIGHT,
    ),
    (
        ConfigError,
        (client.AuthorizationError,),
        reasons.SOME_RIGHT,
    ),
    (
        ConfigError,
        (client.MessageSizeTooLargeError, client.RecordListTooLargeError),
        reasons.too_large("max_request_size"),
    ),
    (
        ConfigError,
        (client.InvalidTimestampError, client.InvalidRecordError),
        reasons.REFUSED_RECORD,
    ),
    (
        ConfigError,
        (client.UnsupportedCodecError, client.UnsupportedCompressionTypeError),
        "the compression of the records needs a package that is not installed; install kafka-python[lz4,snappy,zstd]",
    ),
    (
        ConfigError,
        (client.InconsistentGroupProtocolError,),
        reasons.OTHER_GROUP,
    ),
    (
        ConfigError,
        (
            client.UnsupportedVersionError,
            client.UnsupportedForMessageFormatError,
            client.UnrecognizedBrokerVersion,
        ),
        reasons.OLD_BROKER,
    ),
    (
        ConfigError,
        (
            client.KafkaConfigurationError,
            client.InvalidTopicError,
            client.InvalidGroupIdError,
            client.InvalidSessionTimeoutError,
            client.InvalidTransactionTimeoutError,
            client.GroupMaxSizeReachedError,
            client.InvalidConfigurationError,
            client.InvalidPartitionsError,
            client.InvalidReplicationFactorError,
            client.PolicyViolationError,
            client.OffsetMetadataTooLargeError,
            client.InvalidCommitOffsetSizeError,
        ),
        reasons.BAD_SETTING,
    ),
    (
        ConfigError,
        (ssl.SSLCertVerificationError,),
        "the broker's certificate is not trusted; check ssl_cafile and the name in bootstrap_servers",
    ),
    (
        ConfigError,
        (ssl.SSLError,),
        "no TLS connection could be made; check security_protocol and the ssl_ settings",
    ),
    (
        ConfigError,
        (FileNotFoundError, PermissionError, IsADirectoryError),
        reasons.BAD_FILE,
    ),
    (
        Retry,
        (client.UnknownTopicOrPartitionError, client.UnknownTopicIdError),
        reasons.TOPIC_AWAY,
    ),
    (
        Retry,
        (client.InvalidProducerEpochError, client.InvalidTxnStateError, client.InvalidProducerIdMappingError),
        reasons.ENDED_BY_BROKER,
    ),
    (
        Retry,
        (client.KafkaConnectionError, client.NodeNotReadyError, client.MetadataEmptyBrokerList, OSError),
        reasons.UNREACHABLE,
    ),
    (
        Retry,
        (client.KafkaTimeoutError, client.RequestTimedOutError),
        reasons.LATE,
    ),
    (
        Retry,
        (client.KafkaError,),
        reasons.PASSING,
    ),
)

_CODE = re.compile(r"\[Error (\d+)\]")


def classify(error: BaseException, doing: str) -> KstreamError:
    """The error of the worker's own tree that stands for an error of the client.

    Args:
        error: what the client raised (or an `OSError` below it); one of our own errors comes back as it is.
        doing: what was being done, for the message: "reading sensors[3]", "committing".

    Returns:
        An error to be raised `from` the client's. `Fatal` with the class's name where no rule knows it.
    """
    if isinstance(error, KstreamError):
        return error
    told = _told_by_broker(error)
    for made, classes, reason in RULES:
        if issubclass(told, classes):
            return made(f"{doing}: {reason} ({_words(error)})")
    return Fatal(f"{doing}: unexpected {_words(error)}")


@contextlib.contextmanager
def translate(doing: str) -> Iterator[None]:
    """Errors of the client and of the network leave this block as errors of the worker."""
    try:
        yield
    except (client.KafkaError, OSError) as error:
        raise classify(error, doing) from error


def broker_error(code: int) -> type[client.KafkaError]:
    """The class of a broker's error code; `NoError` for 0."""
    untyped: Any = client
    found: type[client.KafkaError] = untyped.for_code(code)
    return found


def _told_by_broker(error: BaseException) -> type[BaseException]:
    """The error's class; where the client gives a bare `KafkaError`, the class of the broker's error in its text."""
    found = _CODE.search(str(error)) if type(error) is client.KafkaError else None
    return broker_error(int(found.group(1))) if found else type(error)


def _words(error: BaseException) -> str:
    text = str(error)
    name = type(error).__name__
    return text if name in text else f"{name}: {text}" if text else name
