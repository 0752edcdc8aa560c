"""The example of `cme` in docs/models.md runs, and finds what it says."""

import re
import tomllib
from pathlib import Path
from typing import Any

from kstream_worker.config import from_dict

SECTION = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8").split("## `cme`")[1]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_swapped_sensors_are_found_by_what_no_longer_follows() -> None:
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(compile(block("python"), "docs/models.md", "exec"), names)  # noqa: S102 - our own page
    assert 1500 < names["alarms"][0].seq <= 1530
    assert 1490 <= names["alarms"][0].change_seq <= 1520
    assert not names["unseen"]


def test_the_configuration_beside_it_is_one() -> None:
    given = {"app": {"id": "pumps"}, "bus": {"kind": "files", "files": {"inputs": ["-"], "output_dir": "-"}}}
    config = from_dict(given | tomllib.loads(block("toml")))
    assert config.model.kind == "cme"
    assert config.pairing.mode == "explicit"
