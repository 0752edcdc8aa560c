"""What the adapters of both Kafka clients share; imports no client."""
