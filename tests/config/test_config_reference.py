from __future__ import annotations

from pathlib import Path

from kstream_worker.config.fields import fields_of
from kstream_worker.config.kinds import BUILT_IN, RATIO
from kstream_worker.config.reference import page, sections
from kstream_worker.config.schema import Config

ROOT = Path(__file__).parents[2]


def test_the_page_is_the_code() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m kstream_worker.config.reference > docs/configuration.md"


def test_every_key_is_described() -> None:
    found = dict(sections())
    kinds = [kind for kind in BUILT_IN if kind != RATIO]
    assert list(found) == [
        "app", "bus", "bus.kafka", "bus.files", "input", "pairing", "reference", "model", *kinds, "detector", "gate",
        "output", "state", "commit", "telemetry", "worker",
    ]  # fmt: skip
    for path, section in found.items():
        for name, field in fields_of(section).items():
            described = field.section is not None or (field.meta.description or "").endswith(".")
            assert described, f"{path}.{name}"


def test_only_the_application_must_be_named() -> None:
    required = [
        f"{path}.{name}" for path, section in sections() for name, f in fields_of(section).items() if f.required
    ]
    assert required == ["app.id"]
    assert all(field.section is not None for field in fields_of(Config).values())
