"""What errors of a Kafka client mean and which rights are missing, in words with the remedy; for each client."""

from __future__ import annotations

from dataclasses import dataclass

from kstream_worker.errors import ConfigError

NOT_A_MEMBER = "the group has gone on without this member"
INSTANCE_FENCED = (
    "another process uses the same group.instance.id; give each process its own (or a coordinator was lost while this "
    "one joined, and the next one took its repeated request for another's: then to start again is enough)"
)
PRODUCER_FENCED = (
    "another process uses the same transactional id, and this one was put out; see that each process has its own"
)
OUT_OF_RANGE = (
    "the records to be read next are not there: retention deleted them, the topic was made anew, or a broker lost "
    "data; decide where to go on"
)
LOST_NEWEST = (
    "the log has lost records that were read already, and others may stand in their place: a leader was elected that "
    "did not have them (unclean.leader.election.enable). docs/state.md says how to go on"
)
CORRUPT = "the broker sent bytes that cannot be right; a broken disk, or something else than Kafka listens there"
TOPIC_RIGHT = "a right on a topic is missing; `kstream-worker check` names it"
GROUP_RIGHT = "the right READ on the consumer group is missing"
TRANSACTIONAL_RIGHT = "the right WRITE on the transactional id is missing"
SOME_RIGHT = "a right is missing"
REFUSED_RECORD = (
    "the topic does not take the record's time (or, compacted, its null key); set message.timestamp.type to "
    "LogAppendTime on the output topics and the state topic, and cleanup.policy to delete on the output topics"
)
OTHER_GROUP = "the consumer group has members of another application; choose a group of its own"
OLD_BROKER = "the broker is too old for transactions with consumer groups; Kafka 2.5 or newer is needed"
BAD_SETTING = "a setting is not acceptable"
BAD_FILE = "a file named in the client settings cannot be read"
TOPIC_AWAY = "the topic or partition is not there (deleted, or not yet known to every broker)"
ENDED_BY_BROKER = "the broker has ended this transaction; what became of it is read from the committed offsets"
UNREACHABLE = "no broker can be reached"
LATE = "no answer in time"
PASSING = "a passing fault of the broker"


def too_large(client_setting: str) -> str:
    """A record that can never be written."""
    return f"a record is larger than the topic's max.message.bytes (or the client's {client_setting}); raise it"


class NoSuchPartition(ConfigError):
    """An output partition that the producer does not know."""

    def __init__(self, partition: object) -> None:
        super().__init__(f"{partition} does not exist: an output topic has as many partitions as the input")


@dataclass(frozen=True)
class RightsWords:
    """Missing rights of one application, in words with the remedy.

    Args:
        group_id: its consumer group.
        transactional_prefix: what all its transactional ids start with.
        user: whom rights are to be granted.
    """

    group_id: str
    transactional_prefix: str
    user: str = "<name>"

    def hidden_topic(self, topic: str) -> str:
        """A topic that may not even be seen."""
        return f"no right on the topic {topic}, not even to see it. {self._grant('READ', _topic(topic))} (or WRITE)"

    def missing_create(self, topic: str) -> str:
        """A topic that may not be created."""
        return f"the topic {topic} may not be created. {self._grant('CREATE', _topic(topic))}"

    def missing_topic(self, role: str, topic: str) -> str:
        """A topic that does not exist; `role` is `input` or `output`."""
        flags = "--create --partitions N" if role == "input" else "--create"
        return f"the {role} topic {topic} does not exist. Correct its name, or: kstream-worker topics {flags}"

    def bad_topic_name(self, role: str, topic: str) -> str:
        """A topic whose name is illegal."""
        return f"the {role} topic {topic} has a name that Kafka does not allow"

    def missing_on_topic(self, operation: str, role: str, topic: str) -> str:
        """READ or WRITE on a topic."""
        return f"{operation} on the {role} topic {topic} is missing. {self._grant(operation, _topic(topic))}"

    def missing_on_group(self) -> str:
        """READ on the group."""
        return f"READ on the group {self.group_id} is missing. {self._grant('READ', f'--group {self.group_id}')}"

    def missing_on_transactions(self) -> str:
        """WRITE on the transactional ids."""
        resource = f"--transactional-id {self.transactional_prefix} --resource-pattern-type prefixed"
        return f"WRITE on transactional ids that start with {self.transactional_prefix} is missing. " + self._grant(
            "WRITE", resource
        )

    def _grant(self, operation: str, resource: str) -> str:
        principal = f"User:{self.user}"
        return f"Grant it: kafka-acls --add --allow-principal {principal} --operation {operation.title()} {resource}"


def _topic(topic: str) -> str:
    return f"--topic {topic}"
