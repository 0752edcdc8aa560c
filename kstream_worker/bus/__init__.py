"""Adapters of the port: one package per kind of bus. Clients of Kafka are imported here and nowhere else."""
