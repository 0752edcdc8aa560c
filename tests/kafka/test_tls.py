"""TLS with certificates of both sides, and a login by SCRAM, as docs/running.md has it: through the command line."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

from kstream_worker.__main__ import main
from kstream_worker.bus.broker import LocalKafka

OPENSSL = shutil.which("openssl")
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed: no certificates"),
]

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
LOGINS = "org.apache.kafka.common.security"
ADMIN = 'username="admin" password="adminsecret" user_admin="adminsecret"'
# What docs/running.md, "Security", names for each client.
NAMES = {
    "kafka-python": ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "sasl_plain_username", "sasl_plain_password"),
    "confluent": (
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
        *("sasl.username", "sasl.password"),
    ),
}


def openssl(*arguments: str | Path) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *map(str, arguments)], check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, another authority's other.pem, and server.pem and client.pem with their .key."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        openssl(
            "req", "-x509", *KEY, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem", "-subj", "/CN=ca"
        )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", folder / "names")
    for name in ("server", "client"):
        openssl("req", *KEY, "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", folder / f"{name}.csr", "-out", folder / f"{name}.pem", *signed)
    (folder / "store.pem").write_text((folder / "server.key").read_text() + (folder / "server.pem").read_text())
    return folder


@pytest.fixture(scope="module")
def tls_kafka(certificates: Path) -> Iterator[LocalKafka]:
    """A broker that wants a certificate and a login; the user `worker` logs in by SCRAM."""
    settings = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "store.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{LOGINS}.plain.PlainLoginModule required {ADMIN};",
        "listener.name.client.scram-sha-512.sasl.jaas.config": f"{LOGINS}.scram.ScramLoginModule required;",
    }
    with LocalKafka(settings=settings) as broker:
        login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "admin", "sasl_plain_password": "adminsecret"}
        paths = {f"ssl_{name}": str(certificates / file) for name, file in
                 (("cafile", "ca.pem"), ("certfile", "client.pem"), ("keyfile", "client.key"))}  # fmt: skip
        address = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SASL_SSL"}
        with closing(KafkaAdminClient(**address, **login, **paths)) as admin:
            user = UserScramCredentialUpsertion("worker", ScramMechanism.SCRAM_SHA_512, "workersecret")
            admin.alter_user_scram_credentials([user])
        yield broker


def arguments(broker: LocalKafka, folder: Path, client: str, **other: str) -> list[str]:
    """What follows a command: all settings, with `other` values for some of ca, password, protocol."""
    ca, certificate, key, user, password = NAMES[client]
    protocol, mechanism = ("security_protocol", "sasl_mechanism")
    common = {
        protocol: other.get("protocol", "SASL_SSL"),
        mechanism: "SCRAM-SHA-512",
        ca: str(folder / other.get("ca", "ca.pem")),
        certificate: str(folder / "client.pem"),
        key: str(folder / "client.key"),
        user: "worker",
        password: other.get("password", "workersecret"),
    }
    values = {
        "app.id": f"tls-{client}",
        "bus.client": client,
        "bus.kafka.bootstrap_servers": broker.bootstrap_servers,
        "input.topic": "readings",
        "input.y": "value",
        **{f"bus.kafka.common.{name}": value for name, value in common.items()},
    }
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


@pytest.mark.parametrize("client", sorted(NAMES))
def test_topics_are_made_and_all_rights_tried_over_tls(tls_kafka: LocalKafka, certificates: Path, client: str) -> None:
    given = arguments(tls_kafka, certificates, client)
    assert main(["topics", "--create", "--partitions", "1", *given]) == 0
    assert main(["check", *given]) == 0


@pytest.mark.parametrize("client", sorted(NAMES))
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ca": "other.pem"}, ("certificate",)),
        ({"password": "stolen"}, ("does not accept the login",)),
        ({"protocol": "PLAINTEXT"}, ("security", "SASL_SSL")),
    ],
)
def test_what_is_wrong_is_named(
    tls_kafka: LocalKafka, certificates: Path, client: str, wrong: dict[str, str], words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(["check", *arguments(tls_kafka, certificates, client, **wrong)]) == 78
    said = capsys.readouterr()
    assert all(word in said.out + said.err for word in words)
    assert "secret" not in said.out + said.err
    assert "stolen" not in said.out + said.err
