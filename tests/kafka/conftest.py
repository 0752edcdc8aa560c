"""What holds for both clients is tested on both."""

from __future__ import annotations

import pytest
from kafka_member import Member, RdMember


@pytest.fixture(params=[Member, RdMember], ids=["kafka-python", "confluent"])
def client(request: pytest.FixtureRequest) -> type[Member]:
    found: type[Member] = request.param
    return found
