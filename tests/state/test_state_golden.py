"""State that former releases wrote: read, rewritten in the format of today, and continued bit by bit, or refused with
the remedy where a detector keeps other things than then.
"""

from __future__ import annotations

from typing import Any

import pytest
from state_golden import FOLDER, ROWS, Golden, Place, config_of, read

from kstream_worker.errors import ConfigError
from kstream_worker.state.format import HEADER_KEY, decode_header, decode_snapshot

ALL = [f"state-{format}-{bank}{ROWS[bank]}.json" for format in (1, 2) for bank in ("pairs", "ranks")]
FILES = sorted(path.name for path in FOLDER.glob("state-*.json"))
OTHER_ROWS = sorted(set(FILES) - set(ALL))  # written when a key's row was laid out otherwise


def test_there_is_a_file_of_each_format_and_bank() -> None:
    assert set(ALL) <= set(FILES)
    assert {f"state-{format}-{bank}.json" for format in (1, 2) for bank in ROWS} <= set(OTHER_ROWS)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("format", [1, 2])
def test_golden_state_goes_on_bit_by_bit(name: str, format: int) -> None:
    golden = read(FOLDER / name)
    place = Place(config_of(golden.bank, format))
    place.put(golden)
    place.run()
    assert known_fields(place.outputs(), golden) == golden.outputs
    assert place.models == golden.models
    kinds = {"pairs": {"raised"}, "ranks": {"raised", "cleared"}}[
        golden.bank
    ]  # sides that differ: repeated, one incident
    assert {transition["transition"] for transition in golden.outputs["drift-alarms"]} == kinds
    for key, value in place.state():  # all keys spoke, so all is written anew
        decode_header(value) if key == HEADER_KEY else decode_snapshot(value)
        assert value[1] == format  # the first element of the list


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_state_of_another_layout_is_refused_with_the_remedy(name: str) -> None:
    golden = read(FOLDER / name)
    place = Place(config_of(golden.bank, golden.format))
    place.put(golden)
    with pytest.raises(ConfigError, match="--discard-state"):
        place.run()
    assert place.outputs() == {topic: [] for topic in golden.outputs}


def known_fields(outputs: dict[str, list[dict[str, Any]]], golden: Golden) -> dict[str, list[dict[str, Any]]]:
    """Outputs without fields that were added since, and with the reason as it was worded then: it is prose, which is
    mended; the level that it explains is compared.
    """
    return {
        topic: [
            {name: value for name, value in output.items() if name in wanted}
            | {name: wanted[name] for name in ("guarantee_reason",) if name in wanted and output[name]}
            for output, wanted in zip(outputs[topic], golden.outputs[topic], strict=True)
        ]
        for topic in golden.outputs
    }
