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
        "the group has gone on without this member",
    ),
    (
        Fatal,
        (client.FencedInstanceIdError, client.UnreleasedInstanceIdError),
        "another process uses the same group.instance.id; give each process its own",
    ),
    (
        Fatal,
        (client.ProducerFencedError, client.TransactionCoordinatorFencedError),
        "another process uses the same transactional id, and this one was put out; see that each process has its own",
    ),
    (
        Fatal,
        (client.OffsetOutOfRangeError, client.NoOffsetForPartitionError, client.LogTruncationError),
        "the records to be read next are not there: retention deleted them, the topic was made anew, or a broker lost "
        "data; decide where to go on",
    ),
    (
        Fatal,
        (client.CorruptRecordError, client.KafkaProtocolError),
        "the broker sent bytes that cannot be right; a broken disk, or something else than Kafka listens there",
    ),
    (
        ConfigError,
        (client.SaslAuthenticationFailedError, client.UnsupportedSaslMechanismError, client.IllegalSaslStateError),
        "the broker does not accept the login; check security_protocol, sasl_mechanism, user and password",
    ),
    (
        ConfigError,
        (client.TopicAuthorizationFailedError,),
        "a right on a topic is missing; `kstream-worker check` names it",
    ),
    (
        ConfigError,
        (client.GroupAuthorizationFailedError,),
        "the right READ on the consumer group is missing",
    ),
    (
        ConfigError,
        (client.TransactionalIdAuthorizationFailedError,),
        "the right WRITE on the transactional id is missing",
    ),
    (
        ConfigError,
        (client.AuthorizationError,),
        "a right is missing",
    ),
    (
        ConfigError,
        (client.MessageSizeTooLargeError, client.RecordListTooLargeError),
        "a record is larger than the topic's max.message.bytes (or the client's max_request_size); raise it",
    ),
    (
        ConfigError,
        (client.InvalidTimestampError, client.InvalidRecordError),
        "the topic does not take the record's time (or, compacted, its null key); set message.timestamp.type to "
        "LogAppendTime and cleanup.policy to delete on the output topics",
    ),
    (
        ConfigError,
        (client.UnsupportedCodecError, client.UnsupportedCompressionTypeError),
        "the compression of the records needs a package that is not installed; install kafka-python[lz4,snappy,zstd]",
    ),
    (
        ConfigError,
        (client.InconsistentGroupProtocolError,),
        "the consumer group has members of another application; choose a group of its own",
    ),
    (
        ConfigError,
        (
            client.UnsupportedVersionError,
            client.UnsupportedForMessageFormatError,
            client.UnrecognizedBrokerVersion,
        ),
        "the broker is too old for transactions with consumer groups; Kafka 2.5 or newer is needed",
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
        "a setting is not acceptable",
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
        "a file named in the client settings cannot be read",
    ),
    (
        Retry,
        (client.UnknownTopicOrPartitionError, client.UnknownTopicIdError),
        "the topic or partition is not there (deleted, or not yet known to every broker)",
    ),
    (
        Retry,
        (client.InvalidProducerEpochError, client.InvalidTxnStateError, client.InvalidProducerIdMappingError),
        "the broker has ended this transaction; what became of it is read from the committed offsets",
    ),
    (
        Retry,
        (client.KafkaConnectionError, client.NodeNotReadyError, client.MetadataEmptyBrokerList, OSError),
        "no broker can be reached",
    ),
    (
        Retry,
        (client.KafkaTimeoutError, client.RequestTimedOutError),
        "no answer in time",
    ),
    (
        Retry,
        (client.KafkaError,),
        "a passing fault of the broker",
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
