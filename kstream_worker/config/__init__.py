"""Configuration: one section per file, checked as a whole before anything runs."""

from __future__ import annotations

from kstream_worker.config.app import AppConfig
from kstream_worker.config.bus import BusConfig, FilesConfig, KafkaConfig
from kstream_worker.config.cme import CmeConfig
from kstream_worker.config.commissioning import ReferenceConfig
from kstream_worker.config.commit import CommitConfig
from kstream_worker.config.detector import DetectorConfig
from kstream_worker.config.gate import GateConfig
from kstream_worker.config.input import InputConfig
from kstream_worker.config.koopman import KoopmanConfig
from kstream_worker.config.load import from_dict, load
from kstream_worker.config.model import ModelConfig
from kstream_worker.config.olrsc import OlrscConfig
from kstream_worker.config.output import OutputConfig
from kstream_worker.config.pairing import PairingConfig
from kstream_worker.config.problems import ConfigProblems
from kstream_worker.config.redact import ClientSettings, is_secret, redact
from kstream_worker.config.ridge import RidgeConfig
from kstream_worker.config.river import RiverConfig
from kstream_worker.config.schema import Config
from kstream_worker.config.state import StateConfig
from kstream_worker.config.telemetry import TelemetryConfig
from kstream_worker.config.worker import WorkerConfig

__all__ = [
    "AppConfig",
    "BusConfig",
    "ClientSettings",
    "CmeConfig",
    "CommitConfig",
    "Config",
    "ConfigProblems",
    "DetectorConfig",
    "FilesConfig",
    "GateConfig",
    "InputConfig",
    "KafkaConfig",
    "KoopmanConfig",
    "ModelConfig",
    "OlrscConfig",
    "OutputConfig",
    "PairingConfig",
    "ReferenceConfig",
    "RidgeConfig",
    "RiverConfig",
    "StateConfig",
    "TelemetryConfig",
    "WorkerConfig",
    "from_dict",
    "is_secret",
    "load",
    "redact",
]
