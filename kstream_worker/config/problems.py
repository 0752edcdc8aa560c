"""What is wrong with a configuration: several things at once, each with its place and remedy."""

from __future__ import annotations

from collections.abc import Sequence

from kstream_worker.errors import ConfigError


class ConfigProblems(ConfigError):
    """One or more problems; `problems` has them one by one."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
        else:
            lines = "".join(f"\n  - {problem}" for problem in self.problems)
            super().__init__(f"{len(self.problems)} problems in the configuration:{lines}")
