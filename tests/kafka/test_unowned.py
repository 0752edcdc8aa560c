"""A static member that dies between the two rounds of a cooperative rebalance leaves partitions that nobody has."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from kafka_member import RdMember, members, until

pytestmark = pytest.mark.kafka

# Ends, without a word, as soon as it has let go of what another member is to get.
MORTAL = """
import os, sys
from confluent_kafka import Consumer
servers, topic, group = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "group.instance.id": "a",
                     "partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 200,
                     "session.timeout.ms": 30000, "enable.auto.commit": False})
consumer.subscribe([topic], on_assign=lambda _, found: print(len(found), flush=True),
                   on_revoke=lambda _, found: os._exit(9))
while True:
    consumer.poll(0.1)
"""


def test_what_nobody_has_is_found_and_shared_anew(kafka, make_topic, client):
    topic = make_topic(4)
    second = client(kafka, topic, name="b", static=True)
    mortal = subprocess.Popen(
        [sys.executable, "-c", MORTAL, kafka, topic, second.group], stdout=subprocess.PIPE, text=True
    )
    with mortal, contextlib.ExitStack() as stack:
        stack.callback(mortal.kill)
        cluster = stack.enter_context(contextlib.closing(second.bus.cluster()))
        assert mortal.stdout is not None
        assert mortal.stdout.readline() == "4\n"
        assert cluster.unowned(topic).partitions == ()
        with members(second):
            until(lambda: second.poll() is not None and mortal.poll() is not None)
            assert mortal.returncode == 9
            first = client(kafka, topic, name="a", group=second.group, static=True)
            with members(first):
                until(lambda: first.poll() and second.poll() and len(first.owned) == 2)
                until(lambda: first.poll() and second.poll() and len(cluster.unowned(topic).partitions) == 2)
                assert cluster.unowned(topic).before == 1
                assert not second.owned
                first.source.close(leave=True, timeout_s=5)
                first.owned.clear()
                first.source = first.bus.source()
                first.source.start()
                until(lambda: first.poll() and second.poll() and (len(first.owned), len(second.owned)) == (2, 2))
                assert cluster.unowned(topic).partitions == ()


def test_two_brokers_that_answer_for_the_group_tell_nothing(kafka, make_topic, monkeypatch):
    """While the coordinator moves the former one still answers, for what was."""
    topic = make_topic(2)
    member = RdMember(kafka, topic, name="a", static=True)
    with members(member), contextlib.closing(member.bus.cluster()) as cluster:
        member.join(2)
        monkeypatch.setattr(cluster, "partition_count", lambda _: 3)  # as if there were one that nobody has
        until(lambda: member.poll() is not None and cluster.unowned(topic).partitions)
        once = cluster._admin.client.list_groups
        monkeypatch.setattr(cluster._admin.client, "list_groups", lambda **given: 2 * once(**given))
        assert cluster.unowned(topic).partitions == ()
