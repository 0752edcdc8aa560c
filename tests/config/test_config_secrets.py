from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstream_worker.config import ClientSettings, Config, from_dict, is_secret, load
from kstream_worker.errors import ConfigError

SECRET = "correct-horse-battery"


def config_with_secrets() -> Config:
    return from_dict(
        {
            "app": {"id": "a"},
            "bus": {
                "kafka": {
                    "bootstrap_servers": "h:1",
                    "common": {"sasl_plain_password": SECRET, "sasl_plain_username": "me"},
                    "consumer": {"ssl_password": SECRET + "1"},
                    "producer": {"sasl_jaas_config": SECRET + "2"},
                }
            },
            "input": {"topic": "t", "y": "v"},
        }
    )


def test_secrets_do_not_show() -> None:
    config = config_with_secrets()
    assert config.bus.kafka.common["sasl_plain_password"] == SECRET
    kafka = config.bus.kafka
    for shown in (
        repr(config),
        str(config),
        f"{config}",
        repr(config.redacted()),
        repr(kafka.common),
        f"{kafka.common}",
    ):
        assert SECRET not in shown
        assert "***" in shown
    assert config.redacted()["bus"]["kafka"]["common"] == {"sasl_plain_password": "***", "sasl_plain_username": "me"}
    assert config.secrets() == {SECRET, SECRET + "1", SECRET + "2"}


def test_nested_secrets_are_redacted() -> None:
    settings = ClientSettings(listing=[{"api_key": SECRET}], plain=1, password="")
    assert SECRET not in repr(settings)
    assert "'password': ''" in repr(settings)


@pytest.mark.parametrize(
    "name",
    ["sasl_plain_password", "ssl_password", "sasl.password", "sasl_jaas_config", "ssl.key.pem", "client_secret",
     "ssl.key.password", "sasl_oauth_token", "api_key", "AWS_SECRET_ACCESS_KEY", "credentials"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["client_id", "token", "key", "input.key", "null_key", "security_protocol", "arl"])
def test_names_that_are_none(name: str) -> None:
    assert not is_secret(name)


def broken_files() -> list[tuple[str, str]]:
    return [
        ("c.toml", f'password = "{SECRET}'),
        ("c.toml", f"[bus.kafka.common]\nsasl_plain_password = {SECRET}"),
        ("c.yaml", f"bus:\n  password: {SECRET}\n :bad"),
        ("c.yaml", f"password: *{SECRET}"),
        ("c.yaml", f"password: !{SECRET} x"),
        ("c.yaml", f"password: '{SECRET}"),
        ("c.yaml", f"app: {{id: a}}\nbus: {{kind: {SECRET}, kafka: {{bootstrap_servers: 1, passwrd: {SECRET}}}}}"),
        ("c.yaml", f"commit: {{interval: {SECRET}}}\ndetector: {{arl: {SECRET}}}\nmodel: {SECRET}"),
        ("c.yaml", f"bus: {{kafka: {{common: {{sasl_plain_password: {{x: {SECRET}}}}}}}}}"),
    ]


@pytest.mark.parametrize(("name", "text"), broken_files())
def test_errors_quote_no_values(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({"KSTREAM_WORKER__BUS__KAFKA__SASL_PLAIN_PASSWORD": SECRET}, []),
        ({"KSTREAM_WORKER__BUS": SECRET}, []),
        ({"KSTREAM_WORKER__MODEL__SEED": SECRET}, []),
        ({}, [SECRET]),
        ({}, [f"bus.kafka.common={SECRET}"]),
        ({}, [f"bus.kafka.kommon.sasl_plain_password={SECRET}"]),
    ],
)
def test_errors_of_variables_and_flags_quote_no_values(environment: dict[str, str], settings: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, environment=environment, settings=settings)
    assert SECRET not in str(caught.value)


def test_two_configurations_are_equal_by_value() -> None:
    first: Any = config_with_secrets()
    assert first == config_with_secrets()
