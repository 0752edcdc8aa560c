"""Run simulations: `python tests/simulation/chaos_sim.py --seeds 10000`, or `--seed N` for one, with its trace."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sim_scenario import Action, scenario_of, schedule_of
from sim_world import World


@dataclass(frozen=True)
class Failure:
    """What a seed has found."""

    seed: int
    what: str
    actions: Sequence[Action]

    def __str__(self) -> str:
        lines = [f"  {action!r}," for action in self.actions]
        return "\n".join([f"seed {self.seed}: {self.what}", f"{scenario_of(self.seed)}", "actions = [", *lines, "]"])


def simulate(seed: int, actions: Sequence[Action] | None = None) -> Failure | None:
    """Run a seed, with its own schedule or another; what it has found."""
    scenario = scenario_of(seed)
    chosen = schedule_of(scenario) if actions is None else actions
    try:
        World(scenario).run(chosen)
    except Exception as error:  # whatever comes out is a finding
        return Failure(seed, f"{type(error).__name__}: {error}", chosen)
    return None


def first_failure(seeds: Sequence[int]) -> Failure | None:
    """What the first of these seeds that finds something has found."""
    return next((failure for seed in seeds if (failure := simulate(seed)) is not None), None)


def shrink(failure: Failure) -> Failure:
    """The same finding with fewer actions: leave out what is not needed, in ever smaller pieces."""
    size = max(len(failure.actions) // 2, 1)
    while size:
        first = 0
        while first < len(failure.actions):
            fewer = [*failure.actions[:first], *failure.actions[first + size :]]
            found = simulate(failure.seed, fewer)
            if found is None:
                first += size
            else:
                failure = found
        size //= 2
    return failure


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("SEEDS", "10000")))
    parser.add_argument("--first", type=int, default=int(os.environ.get("FIRST", "0")))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--most", type=int, default=1, help="findings before it stops")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began_s, found = time.monotonic(), 0
    for number, seed in enumerate(seeds):
        failure = simulate(seed)
        if failure is not None:
            print(shrink(failure), flush=True)
            found += 1
            if found >= options.most:
                return 1
        if number % 1000 == 999:
            print(f"{number + 1} seeds, {time.monotonic() - began_s:.0f} s", flush=True)
    print(f"{len(seeds)} seeds, {time.monotonic() - began_s:.0f} s, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
