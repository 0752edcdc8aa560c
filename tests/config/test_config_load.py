from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kstream_worker import app
from kstream_worker.config import Config, ConfigProblems, from_dict, load
from kstream_worker.config.fields import fields_of
from kstream_worker.errors import ConfigError

KAFKA: dict[str, Any] = {
    "app": {"id": "pumps"},
    "bus": {"kafka": {"bootstrap_servers": ["localhost:9092"]}},
    "input": {"topic": "readings", "y": ["temp", "flow"]},
}

TOML = """
[app]
id = "pumps"
[bus.kafka]
bootstrap_servers = "a:9092, b:9092"
[bus.kafka.consumer]
fetch_max_wait_ms = 100
[input]
topic = "readings"
x = ["before.temp"]
y = ["after.temp"]
start = 2026-01-01T00:00:00Z
[detector]
arl = 10_000
dead_time = "1d"
[commit]
interval = "500ms"
max_bytes = "8MiB"
[telemetry]
port = "none"
"""

YAML = """
app: {id: pumps}
bus:
  kafka:
    bootstrap_servers: a:9092, b:9092
    consumer: {fetch_max_wait_ms: 100}
input:
  topic: readings
  x: [before.temp]
  y: [after.temp]
  start: 2026-01-01T00:00:00Z
detector: {arl: 1e4, dead_time: 1d}
commit: {interval: 500ms, max_bytes: 8MiB}
telemetry: {port: none}
"""


def problems_of(values: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigProblems) as caught:
        from_dict(values)
    return caught.value.problems


def changed(path: str, value: object) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(KAFKA))
    node = values
    *above, name = path.split(".")
    for part in above:
        node = node.setdefault(part, {})
    node[name] = value
    return values


@pytest.mark.parametrize(("name", "text"), [("c.toml", TOML), ("c.yaml", YAML), ("c.yml", YAML)])
def test_toml_and_yaml_mean_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    config = load(tmp_path / name)
    assert config.bus.kafka.bootstrap_servers == ("a:9092", "b:9092")
    assert config.bus.kafka.consumer == {"fetch_max_wait_ms": 100}
    assert config.input.start_ms() == 1767225600000
    assert config.detector.arl == 10_000
    assert config.detector.dead_time == 86400
    assert config.commit.interval == 0.5
    assert config.commit.max_bytes == 8 * 2**20
    assert config.telemetry.port is None
    assert config.pairing.mode == "explicit"


def test_defaults_that_depend_on_other_keys() -> None:
    config = from_dict(KAFKA)
    assert config.bus.kafka.group_id == "pumps"
    assert config.output.estimates == "pumps-estimates"
    assert config.output.alarms == "pumps-alarms"
    assert config.output.dead_letters == "pumps-dead-letters"
    assert config.pairing.mode == "stream"
    assert from_dict(changed("output.alarms", "shouts")).output.alarms == "shouts"
    files = from_dict({"app": {"id": "a"}, "bus": {"kind": "files", "files": {"inputs": "-"}}, "input": {"y": "v"}})
    assert files.input.topic == "input"


def test_a_single_path_is_one_number_or_with_dims_an_array() -> None:
    assert from_dict(changed("input.y", "temp")).input.y == ("temp",)
    assert from_dict({**KAFKA, "input": {"topic": "t", "y": ("a", "b")}}).input.y == ("a", "b")
    values = changed("input.y", "samples")
    values["input"]["dims"] = 3
    config = from_dict(values)
    assert config.input.y == "samples"
    assert config.input.side_dims(config.input.y) == 3


def test_flag_goes_before_environment_goes_before_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(TOML)
    environment = {"KSTREAM_WORKER__DETECTOR__ARL": "20000", "KSTREAM_WORKER__MODEL__SEED": "7", "OTHER": "x"}
    assert load(path).detector.arl == 10_000
    assert load(path, environment=environment).detector.arl == 20_000
    both = load(path, environment=environment, settings=["detector.arl=1", "detector.arl=30000"])
    assert both.detector.arl == 30_000
    assert both.model.seed == 7
    named = load(path, settings=["detector.arl=30000"], flags=[("--arl", "detector.arl", "40000")])
    assert named.detector.arl == 40_000


def test_a_list_replaces_a_list_and_tables_are_merged() -> None:
    config = load(
        None,
        environment={
            "KSTREAM_WORKER__APP__ID": "a",
            "KSTREAM_WORKER__BUS__KAFKA__BOOTSTRAP_SERVERS": "h:1,i:2",
            "KSTREAM_WORKER__BUS__KAFKA__COMMON__SECURITY_PROTOCOL": "SASL_SSL",
            "KSTREAM_WORKER__INPUT__Y": '["p", "q"]',
        },
        settings=["input.topic=t", "bus.kafka.common.client_id=me", "input.y=[r, s, t]"],
    )
    assert config.bus.kafka.common == {"security_protocol": "SASL_SSL", "client_id": "me"}
    assert config.bus.kafka.bootstrap_servers == ("h:1", "i:2")
    assert config.input.y == ("r", "s", "t")


@pytest.mark.parametrize(
    ("text", "value"),
    [("500", 500), ("1.5", 1.5), ("true", True), ("False", False), ("none", None), ('"500"', "500"), ("007", "007"),
     ("[1, 2]", [1, 2]), ("plain text", "plain text"), ("12:30", "12:30"), ("-1", -1), ("[broken", "[broken")],
)  # fmt: skip
def test_client_settings_from_the_environment(text: str, value: object) -> None:
    environment = {"KSTREAM_WORKER__BUS__KAFKA__PRODUCER__LINGER_MS": text}
    settings = ["app.id=a", "bus.kafka.bootstrap_servers=h:1", "input.topic=t", "input.y=v"]
    found = load(None, environment=environment, settings=settings).bus.kafka.producer["linger_ms"]
    assert found == value
    assert type(found) is type(value)


def test_secret_files_and_digits_as_password(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("123456\n")
    settings = ["app.id=a", "bus.kafka.bootstrap_servers=h:1", "input.topic=t", "input.y=v"]
    name = "KSTREAM_WORKER__BUS__KAFKA__COMMON__SASL_PLAIN_PASSWORD"
    config = load(None, environment={f"{name}_FILE": str(secret)}, settings=settings)
    assert config.bus.kafka.common == {"sasl_plain_password": "123456"}
    with pytest.raises(ConfigError, match="give the same key"):
        load(None, environment={f"{name}_FILE": str(secret), name: "x"}, settings=settings)
    with pytest.raises(ConfigError, match=f"{name}_FILE: the file it names cannot be read: No such file"):
        load(None, environment={f"{name}_FILE": str(tmp_path / "gone")}, settings=settings)
    config = load(None, environment={"KSTREAM_WORKER__MODEL__SEED_FILE": str(secret)}, settings=settings)
    assert config.model.seed == 123456


def _leaf_paths(section: type[msgspec.Struct] = Config, above: str = "") -> Iterator[str]:
    for name, field in fields_of(section).items():
        if field.section is not None:
            yield above + name
            yield from _leaf_paths(field.section, f"{above}{name}.")
        elif field.table is None:
            yield above + name


@pytest.mark.parametrize("path", list(_leaf_paths()))
def test_a_misspelt_key_is_refused_at_every_level_with_the_right_name(path: str) -> None:
    *above, name = path.split(".")
    misspelt = ".".join([*above, name + "q"])
    found = [problem for problem in problems_of(changed(misspelt, 1)) if f"unknown key `{misspelt}`" in problem]
    assert len(found) == 1
    assert f"did you mean `{path}`?" in found[0]
    assert "(given values)" in found[0]


def test_an_unknown_key_of_another_section_is_pointed_to() -> None:
    assert "did you mean `detector.arl`?" in problems_of(changed("model.arl", 5))[0]


def test_one_underscore_in_a_variable_where_two_belong() -> None:
    with pytest.raises(ConfigError, match=r"did you mean `input\.topic`\?"):
        load(None, environment={"KSTREAM_WORKER__INPUT_TOPIC": "readings"})
    assert "client settings belong to bus.kafka.common" in problems_of(changed("bus.kafka.sasl_mechanism", "PLAIN"))[0]
    assert "the sections are app, bus" in problems_of(changed("zzz", 1))[0]


def test_the_place_of_a_problem_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(TOML.replace("arl = 10_000", 'arl = "many"'))
    with pytest.raises(ConfigProblems) as caught:
        load(path, environment={"KSTREAM_WORKER__MODEL__SEED": "x"}, settings=["gate.window_records=0", "x"])
    text = "\n".join(caught.value.problems)
    assert f"`detector.arl` ({path}): expected a number, above 1, got text" in text
    assert "`model.seed` (environment variable KSTREAM_WORKER__MODEL__SEED): expected a whole number" in text
    assert "`gate.window_records` (flag --set gate.window_records): expected a whole number, at least 1, got 0" in text
    assert "flag --set ...: expected --set section.key=value" in text
    assert str(caught.value).startswith("4 problems in the configuration:")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.seed", 1.5, "expected a whole number, at least 0 and at most 9223372036854775807, got a number"),
        ("model.seed", True, "got true or false"),
        ("model.seed", -1, "got -1"),
        ("model.alpha", "0.1", "expected a number, above 0 and below 1, got text"),
        ("model.alpha", 1, "got 1"),
        ("model.alpha", float("nan"), "expected a number"),
        ("model.atoms", {"a": 1}, "`model.atoms` (given values) is a key, not a section"),
        ("model", 3, "`model` (given values) is a section"),
        ("bus.kafka.common", 3, "is a table of client settings"),
        ("bus.kafka.common", {"a": {"b": 1}}, "`bus.kafka.common.a` (given values): expected a value, got a table"),
        ("app.id", 5, "expected text, got a whole number; put it in quotes"),
        ("input.y", [1, 2], "expected text or a list of texts, got a list with a whole number in it"),
        ("input.y", ["a", ""], "got a list with empty text in it"),
        ("input.topic", None, "expected text, got nothing"),
        ("commit.interval", "1 fortnight", "expected a number of seconds, or text such as 200ms"),
        ("commit.interval", [1], "got a list"),
        ("commit.max_bytes", "1KiB", "at least 64KiB, got 1KiB"),
        ("bus.kind", "kafak", "expected one of kafka, files; did you mean kafka?"),
        ("telemetry.port", 65536, "expected a whole number, at least 0 and at most 65535, or none, got 65536"),
        ("detector.arl", 1, "above 1, got 1"),
    ],
)
def test_wrong_values_say_what_was_expected(path: str, value: object, message: str) -> None:
    assert any(message in problem for problem in problems_of(changed(path, value)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairing.mode": "explicit"}, "`input.x` is not bound"),
        ({"pairing.mode": "stream", "input.x": ["a", "b"]}, "`input.x` is bound: remove it"),
        ({"input.y": []}, "`input.y` is missing"),
        ({"input.x": ["a"]}, "`input.x` binds 1 values and `input.y` binds 2"),
        ({"input.y": ["a", "a"]}, "names a path twice"),
        ({"input.dims": 2}, "name no array"),
        ({"input.start": "yesterday"}, "expected earliest, latest or a time in ISO 8601"),
        ({"input.start": "2026-01-01T00:00:00"}, "the time has no zone"),
        ({"input.null_key_buckets": 4}, "has no effect unless `input.null_key` is by_offset"),
        ({"commit.interval": "199ms"}, "below 200ms"),
        ({"commit.timeout": "26s"}, "longer than `worker.shutdown_grace`"),
        ({"worker.progress_timeout": "20s"}, "must be longer than `commit.timeout`"),
        ({"commit.max_bytes": "512KiB"}, "one dead letter must fit"),
        ({"output.alarms": "readings"}, "`output.alarms` is the input topic"),
        ({"output.alarms": "pumps-estimates"}, "`output.estimates` and `output.alarms` are the same topic"),
        ({"output.alarms": "a b"}, "expected 1 to 249 letters"),
        ({"app.id": "a/b"}, "expected 1 to 200 letters"),
        ({"app.id": ""}, "expected 1 to 200 letters"),
        ({"bus.kafka.bootstrap_servers": []}, "`bus.kafka.bootstrap_servers` is missing"),
        ({"bus.kafka.group_instance_id": ""}, "`bus.kafka.group_instance_id` is empty"),
        ({"telemetry.host": ""}, "`telemetry.host` is empty"),
        ({"input.topic": ""}, "`input.topic` is missing"),
        ({"bus.kind": "files"}, "`bus.files.inputs` is missing"),
        ({"bus.kind": "files", "bus.files.inputs": ["-", "a"]}, "take one or the other"),
        ({"bus.kind": "files", "bus.files.inputs": "a", "bus.files.output_dir": ""}, "`bus.files.output_dir` is empty"),
        ({"bus.kind": "files", "bus.files.inputs": "a", "bus.files.key_column": "k"}, "needs `bus.files.format` csv"),
        ({"bus.kind": "files", "bus.files.inputs": "a", "input.format": "msgpack"}, "`input.format` must be json"),
        (
            {"pairing.mode": "explicit", "input.x": ["a", "b"], "detector.period": "1d"},
            "`detector.period` needs `pairing.mode` stream",
        ),
        ({"model.kind": "olrsc", "detector.period": "1d"}, "`detector.period` has no effect"),
        ({"detector.period": ["1d", "auto"]}, "takes durations such as 1d and 7d, or auto alone"),
        ({"detector.period": "1d", "detector.dependence": "thin"}, "needs `detector.dependence` auto or whiten"),
        ({"detector.time_zone": "Europe/Berlin"}, "`detector.time_zone` serves seasons alone"),
        ({"bus.kind": "files", "bus.files.inputs": "a", "detector.period": "1d"}, "bind `input.timestamp`"),
        (
            {"pairing.mode": "explicit", "input.x": ["a", "b"], "detector.dependence": "whiten"},
            "whiten needs `pairing.mode` stream",
        ),
        ({"detector.silence": "7d"}, "`detector.silence` (7d), an eighth of it added, must be shorter"),
        ({"detector.silence": "162h"}, "must be shorter than `state.ttl` (7d)"),
        ({"bus.kind": "files", "bus.files.inputs": "a", "detector.silence": "1h"}, "`detector.silence` is event time"),
        ({"model.kind": "koopman", "pairing.mode": "lag", "pairing.lag": 3}, "`koopman.lag` is 1 and `pairing.lag` 3"),
        ({"reference.delta": 0.1}, "`reference.delta` has no effect unless `pairing.mode` is reference"),
        ({"pairing.mode": "reference", "input.x": ["a", "b"]}, "`pairing.mode` reference takes one sample a record"),
        ({"pairing.mode": "reference", "model.alpha": 0.3}, "fixed in `pairing.mode` reference"),
        ({"pairing.mode": "reference", "detector.warmup": 300}, "`reference.samples` says what a key learns"),
        ({"pairing.mode": "reference", "detector.profile": "compact"}, "`detector.profile` has no effect"),
        ({"pairing.mode": "reference", "detector.dependence": "block"}, "a frozen reference is tested for"),
        ({"pairing.mode": "reference", "reference.start": "2026-01-01"}, "`reference.start`: the time has no zone"),
        ({"pairing.mode": "reference", "reference.end": "soon"}, "`reference.end`: expected a time in ISO 8601"),
        (
            {"pairing.mode": "reference", "reference.file": "f", "reference.end": "2026-01-01T00:00:00Z"},
            "take one or the other",
        ),
        (
            {
                "pairing.mode": "reference",
                "reference.start": "2026-01-01T00:00:00Z",
                "reference.end": "2026-01-01T00:00:00Z",
            },
            "must be later than `reference.start`",
        ),
    ],
)
def test_contradictions_are_refused_with_the_reason(changes: dict[str, object], message: str) -> None:
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(KAFKA))
    for path, value in changes.items():
        node = values
        *above, name = path.split(".")
        for part in above:
            node = node.setdefault(part, {})
        node[name] = value
    assert any(message in problem for problem in problems_of(values))


def test_names_made_of_a_wrong_id_are_not_told_again() -> None:
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(KAFKA))
    values["app"]["id"] = "my pumps"
    values["output"] = {"alarms": "my alarms"}
    assert [problem.split(":")[0] for problem in problems_of(values)] == ["`app.id`", "`output.alarms`"]


def test_without_a_time_to_live_a_silence_may_last_for_any_time() -> None:
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(KAFKA))
    values["detector"] = values.get("detector", {}) | {"silence": "30d"}
    values["state"] = {"ttl": 0}
    assert from_dict(values).detector.silence == 30 * 86_400


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.toml", b"a = \n", "is not valid TOML at line 1, column 5"),
        ("c.toml", b"a = 1\na = 2", "is not valid TOML at"),
        ("c.yaml", b"app: {id: pumps\nx: [", "is not valid YAML at line"),
        ("c.yaml", b"app: {id: a}\napp: {id: b}", "is not valid YAML at line 2, column 1: a key stands twice"),
        ("c.yaml", b"- a\n- b", "must hold sections with keys"),
        ("c.yaml", b"app: {on: 1}", "a key in `app` is no text"),
        ("c.toml", b"\xff\xfe", "is not UTF-8 text"),
        ("c.json", b"{}", "name it .toml, .yaml or .yml"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_files_and_empty_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml does not exist"):
        load(tmp_path / "gone.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(ConfigError, match=r"folder\.toml cannot be read: Is a directory"):
        load(tmp_path / "folder.toml")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"`app\.id` is missing"):
        load(tmp_path / "empty.yaml")


def test_malformed_variables() -> None:
    with pytest.raises(ConfigError, match="expected KSTREAM_WORKER__SECTION__KEY"):
        load(None, environment={"KSTREAM_WORKER__APP__": "x"})


def test_a_fleet_is_whole_and_does_not_contradict_a_run_length() -> None:
    fleet = {"fleet_keys": 2000, "fleet_false_alarms_per_day": 0.5}
    config = from_dict({**KAFKA, "detector": fleet})
    assert app.state_identity(config).arl == 4000.0
    assert app.loop_settings(config).fleet_keys == 2000
    for detector, words in (
        ({"fleet_keys": 2000}, "go together"),
        ({"fleet_false_alarms_per_day": 0.5}, "go together"),
        ({**fleet, "arl": 1e5}, "contradicts"),
        ({**fleet, "escalation": 0.1}, "escalation"),
    ):
        assert any(words in problem for problem in problems_of({**KAFKA, "detector": detector}))
    reference = {**KAFKA, "detector": fleet, "pairing": {"mode": "reference"}}
    assert any("no effect in `pairing.mode` reference" in problem for problem in problems_of(reference))


def test_where_there_is_no_event_time_nothing_escalates() -> None:
    files = {"kind": "files", "files": {"inputs": ["a.jsonl"]}}
    assert from_dict(KAFKA).detector.escalation == 10.0
    assert from_dict({**KAFKA, "bus": files}).detector.escalation == 1.0
    for detector in ({"escalation": 2}, {"fleet_keys": 9, "fleet_false_alarms_per_day": 1}):
        problems = problems_of({**KAFKA, "bus": files, "detector": detector})
        assert any("bind `input.timestamp`" in problem for problem in problems)
