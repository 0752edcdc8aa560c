from __future__ import annotations

from pathlib import Path

from kstream_worker.telemetry.reference import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_the_code() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m kstream_worker.telemetry.reference > docs/metrics.md"
