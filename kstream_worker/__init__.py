"""Drift detection for telemetry on Kafka."""

__version__ = "0.1.0"
