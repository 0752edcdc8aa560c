from __future__ import annotations

import json
import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from kstream_worker.config import load
from kstream_worker.errors import EXIT_CONFIG
from kstream_worker.records import TopicPartition
from kstream_worker.telemetry.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
CLOSING_S = 10  # a worker closes its source and its writer within 5 s each


class Loop:
    def assigned(self) -> int:
        return 1

    def is_ready(self) -> bool:
        return True

    def heartbeat_age_s(self) -> float:
        return 0.0


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Names of all samples that a worker exports, with their labels."""
    metrics, tp = Metrics("1", Loop()), TopicPartition("t", 0)
    metrics.records(tp, 1)
    metrics.rejects("not_finite", 1)
    metrics.keys(tp, 1, 1)
    metrics.silent_keys(tp, 1)
    metrics.lag(tp, 1)
    metrics.bank_bytes(tp, 1)
    metrics.outbox_bytes(tp, 1)
    metrics.log_ratios(np.zeros(1))
    metrics.replay_span(tp, 1)
    metrics.dirty_keys(tp, 1)
    metrics.snapshot_budget(1.0)
    metrics.fleet_keys(1, 1)
    metrics.restored(tp, 1, 1.0)
    metrics.restoring(tp, 1, 2)
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    found += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return found


def test_rules_and_dashboard_ask_for_metrics_that_exist(exported: dict[str, set[str]]) -> None:
    asked = expressions()
    assert len(asked) > 25
    for expression in asked:
        names = re.findall(r"\b(?:kstream_worker|process)_\w+", expression)
        assert names or "up{" in expression
        assert set(names) <= set(exported), expression
        matchers = re.findall(r"(kstream_worker_\w+)\{([^}]*)\}", expression)
        for name, inside in matchers:
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", inside)) - {"job", "instance"}
            assert labels <= exported[name], expression


def test_every_metric_is_on_the_dashboard_or_in_a_rule(exported: dict[str, set[str]]) -> None:
    text = "\n".join(expressions())
    families = {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in exported if name.startswith("kstream")}
    assert {name for name in families if name not in text} == {"kstream_worker_build_info"}


def test_every_alert_says_what_to_do_and_is_tested() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    tests = yaml.safe_load((DEPLOY / "alerts_test.yml").read_text())
    tried = {check["alertname"] for test in tests["tests"] for check in test["alert_rule_test"] if check["exp_alerts"]}
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in alerts} == tried
    for rule in alerts:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_check_script_finds_no_fault() -> None:
    """Runs promtool and docker compose where they are installed; the tests here need neither."""
    shell = shutil.which("sh")
    assert shell is not None
    done = subprocess.run([shell, str(DEPLOY / "check.sh")], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_example_configuration_is_valid() -> None:
    config = load(DEPLOY / "config.example.toml")
    assert config.pairing.mode == "stream"
    assert config.input.y == ("values.temperature", "values.pressure")


def test_example_configuration_is_valid_with_its_comments_removed(tmp_path: Path) -> None:
    text = (DEPLOY / "config.example.toml").read_text()
    assignments = re.sub(r"^# (\[|\w+ = )", r"\1", text, flags=re.MULTILINE)
    (tmp_path / "c.toml").write_text(assignments)
    config = load(tmp_path / "c.toml")
    assert config.bus.kafka.group_instance_id == "pumps-0"
    assert config.bus.kafka.common["security_protocol"] == "SASL_SSL"


def test_the_worker_runs_without_rights() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    for name in ("worker", "topics"):
        service = services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", []))
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER \d+:\d+$", dockerfile, re.MULTILINE)
    grace_s = float(services["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace_s >= load(DEPLOY / "config.example.toml").worker.shutdown_grace + CLOSING_S


@pytest.fixture(scope="module")
def kubernetes() -> dict[str, dict[str, Any]]:
    return {found["kind"]: found for found in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def test_pods_run_without_rights(kubernetes: dict[str, dict[str, Any]]) -> None:
    for kind in ("Job", "StatefulSet"):
        pod = kubernetes[kind]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_pod_is_given_the_time_to_start_to_restore_and_to_stop(kubernetes: dict[str, dict[str, Any]]) -> None:
    pod = kubernetes["StatefulSet"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    config = load(DEPLOY / "config.example.toml")
    assert pod["terminationGracePeriodSeconds"] >= config.worker.shutdown_grace + CLOSING_S
    # A pod without partitions is never ready, and one that restores not yet: neither is a reason to restart it.
    probes = {name: worker[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert worker["startupProbe"]["periodSeconds"] * worker["startupProbe"]["failureThreshold"] >= 180
    assert worker["ports"] == [{"name": "telemetry", "containerPort": config.telemetry.port}]
    assert worker["env"][0]["name"] == "KSTREAM_WORKER__BUS__KAFKA__GROUP_INSTANCE_ID"


def test_only_one_pod_is_evicted_at_a_time(kubernetes: dict[str, dict[str, Any]]) -> None:
    labels = kubernetes["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    budget = kubernetes["PodDisruptionBudget"]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels)
    assert kubernetes["Service"]["spec"]["selector"] == kubernetes["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert kubernetes["Job"]["spec"]["template"]["metadata"]["labels"] != labels


def test_a_unit_is_given_the_time_to_stop_and_is_not_started_in_vain() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "kstream-worker@.service").read_text())
    service = unit["Service"]
    assert float(service["TimeoutStopSec"]) >= load(DEPLOY / "config.example.toml").worker.shutdown_grace + CLOSING_S
    assert service["Restart"] == "on-failure"
    assert str(EXIT_CONFIG) in service["RestartPreventExitStatus"].split()
    assert service["DynamicUser"] == "yes"
    assert "MemoryDenyWriteExecute" not in service  # kernels are compiled machine code


def test_every_severity_has_a_receiver() -> None:
    routing = yaml.safe_load((DEPLOY / "alertmanager.yml").read_text())
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    named = {receiver["name"] for receiver in routing["receivers"]}
    special = {
        matcher.removeprefix("severity=").strip('"'): route["receiver"]
        for route in routing["route"]["routes"]
        for matcher in route["matchers"]
    }
    severities = {rule["labels"]["severity"] for group in rules["groups"] for rule in group["rules"]}
    told = {severity: special.get(severity, routing["route"]["receiver"]) for severity in severities}
    assert set(told.values()) == named
    assert len(named) == len(severities)
