"""Section `bus`: where records come from and where they go."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc
from kstream_worker.config.redact import ClientSettings


class KafkaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Apache Kafka. Everything else that the client knows goes into the three tables, under its own names."""

    bootstrap_servers: Annotated[
        tuple[str, ...],
        doc("`host:port` of some brokers, as a list or as one text with commas. Needed for `bus.kind: kafka`."),
    ] = ()
    group_id: Annotated[str, doc("Consumer group. Empty: `app.id`.")] = ""
    group_instance_id: Annotated[
        str | None,
        doc("Static membership: a name of its own for each process, such as the pod's; restarts move nothing."),
    ] = None
    common: Annotated[
        ClientSettings,
        doc("Client settings of consumer and producer alike (security, time-outs), under the client's names."),
    ] = msgspec.field(default_factory=ClientSettings)
    consumer: Annotated[ClientSettings, doc("Client settings of the consumer alone.")] = msgspec.field(
        default_factory=ClientSettings
    )
    producer: Annotated[ClientSettings, doc("Client settings of the producer alone.")] = msgspec.field(
        default_factory=ClientSettings
    )


class FilesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files instead of a broker: one process, exactly once into files, at least once into standard output."""

    inputs: Annotated[
        tuple[str, ...],
        doc(
            "Paths, globs or folders (their `.jsonl`, `.ndjson` or `.csv` files), each file one partition, in sorted "
            "order; or `-` for standard input."
        ),
    ] = ()
    output_dir: Annotated[str, doc("Folder of the output files, or `-` for standard output.")] = "out"
    format: Annotated[
        Literal["jsonl", "csv"], doc("Inputs: JSON Lines, or CSV with a header line. Outputs are JSON Lines.")
    ] = "jsonl"
    key_column: Annotated[str, doc("CSV: the column that is the record's key. Empty: no key; see `input.key`.")] = ""


class BusConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which bus, and its settings."""

    kind: Annotated[Literal["kafka", "files"], doc("Apache Kafka, or files without a broker.")] = "kafka"
    client: Annotated[
        Literal["kafka-python", "confluent"],
        doc(
            "The Kafka client: kafka-python, or librdkafka (confluent-kafka, several times as fast; install "
            "`kstream-worker[librdkafka]`). Client settings go by the names of the one chosen."
        ),
    ] = "kafka-python"
    kafka: KafkaConfig = msgspec.field(default_factory=KafkaConfig)
    files: FilesConfig = msgspec.field(default_factory=FilesConfig)
