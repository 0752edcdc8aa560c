"""The whole configuration: one section per file, in the order in which a record meets them."""

from __future__ import annotations

from typing import Any

import msgspec

from kstream_worker.config.app import AppConfig
from kstream_worker.config.bus import BusConfig
from kstream_worker.config.cme import CmeConfig
from kstream_worker.config.commissioning import ReferenceConfig
from kstream_worker.config.commit import CommitConfig
from kstream_worker.config.detector import DetectorConfig
from kstream_worker.config.gate import GateConfig
from kstream_worker.config.input import InputConfig
from kstream_worker.config.koopman import KoopmanConfig
from kstream_worker.config.model import ModelConfig
from kstream_worker.config.olrsc import OlrscConfig
from kstream_worker.config.output import OutputConfig
from kstream_worker.config.pairing import PairingConfig
from kstream_worker.config.redact import redact, secret_values
from kstream_worker.config.ridge import RidgeConfig
from kstream_worker.config.river import RiverConfig
from kstream_worker.config.state import StateConfig
from kstream_worker.config.telemetry import TelemetryConfig
from kstream_worker.config.worker import WorkerConfig


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checked configuration, with defaults that depend on others filled in."""

    app: AppConfig
    bus: BusConfig = msgspec.field(default_factory=BusConfig)
    input: InputConfig = msgspec.field(default_factory=InputConfig)
    pairing: PairingConfig = msgspec.field(default_factory=PairingConfig)
    reference: ReferenceConfig = msgspec.field(default_factory=ReferenceConfig)
    model: ModelConfig = msgspec.field(default_factory=ModelConfig)
    cme: CmeConfig = msgspec.field(default_factory=CmeConfig)
    olrsc: OlrscConfig = msgspec.field(default_factory=OlrscConfig)
    ridge: RidgeConfig = msgspec.field(default_factory=RidgeConfig)
    koopman: KoopmanConfig = msgspec.field(default_factory=KoopmanConfig)
    river: RiverConfig = msgspec.field(default_factory=RiverConfig)
    detector: DetectorConfig = msgspec.field(default_factory=DetectorConfig)
    gate: GateConfig = msgspec.field(default_factory=GateConfig)
    output: OutputConfig = msgspec.field(default_factory=OutputConfig)
    state: StateConfig = msgspec.field(default_factory=StateConfig)
    commit: CommitConfig = msgspec.field(default_factory=CommitConfig)
    telemetry: TelemetryConfig = msgspec.field(default_factory=TelemetryConfig)
    worker: WorkerConfig = msgspec.field(default_factory=WorkerConfig)

    def redacted(self) -> dict[str, Any]:
        """Plain dictionaries of everything, fit for logs: secrets are `***`."""
        plain: dict[str, Any] = {}
        for name in self.__struct_fields__:
            plain[name] = redact(msgspec.to_builtins(getattr(self, name)))
        return plain

    def secrets(self) -> frozenset[str]:
        """All secret texts, to be kept out of logs."""
        kafka = self.bus.kafka
        return frozenset(
            text for table in (kafka.common, kafka.consumer, kafka.producer) for text in secret_values(table)
        )
