import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_soft_sensor_of_the_documentation() -> None:
    section = DOCS.read_text().split("\n## `ridge`\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert code.count("assert") == 9
    exec(compile(code, str(DOCS), "exec"), {})  # noqa: S102 - our own page, whose example must run as printed
