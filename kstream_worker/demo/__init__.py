"""The demonstration: real server telemetry replayed through the worker, without a broker or through a local Kafka."""
