"""The forecast in docs/models.md runs as it is printed, and says what the system is."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_forecast_of_the_documentation() -> None:
    section = PAGE.read_text(encoding="utf-8").split("\n## `koopman`\n")[1]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    said: dict[str, Any] = {}
    exec(code, said)  # noqa: S102 - it is our own page
    eigenvalue = np.linalg.eigvals(np.array([[0.9, 0.4], [-0.1, 1.0]]))[0]
    assert said["swing"] == pytest.approx(2.0 * np.pi / abs(np.angle(eigenvalue)), rel=0.2)
    assert said["settles"] == pytest.approx(-1.0 / np.log(abs(eigenvalue)), rel=0.4)
    assert said["better_than_standing_still"] > 0.3
    assert 0.05 < said["give_or_take"] < said["temperature"].std() * 1.3
    assert abs(said["in_10_s"] - 60.0) < 5.0
