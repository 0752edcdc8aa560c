"""Whatever happens to the processes, their outputs and their state are those of one that nothing disturbs."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from chaos_sim import Failure, first_failure, shrink, simulate
from sim_mutants import MUTANTS, Break
from sim_oracle import undisturbed
from sim_scenario import SEEDS_PER_SCRIPT

SEEDS = 2000
PROCESSES = 2


@pytest.mark.timeout(600)
def test_no_schedule_of_trouble_changes_a_bit() -> None:
    """Seeds in turn, in pieces that share their scripts; a finding comes with a trace that can be run again."""
    pieces = [
        range(first, min(first + 10 * SEEDS_PER_SCRIPT, SEEDS)) for first in range(0, SEEDS, 10 * SEEDS_PER_SCRIPT)
    ]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        failures = [failure for failure in pool.map(first_failure, pieces) if failure is not None]
    if failures:
        pytest.fail(str(shrink(failures[0])))


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.__name__)
def test_simulations_find(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed.cache_clear()
    broken(monkeypatch)
    failure = first_failure(range(120))
    undisturbed.cache_clear()  # what a broken worker found must not be an oracle for the others
    assert failure is not None


def test_a_trace_leads_to_the_same_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    from sim_mutants import a_replay_that_begins_too_late

    undisturbed.cache_clear()
    a_replay_that_begins_too_late(monkeypatch)
    failure = first_failure(range(20))
    assert failure is not None
    small = shrink(failure)
    assert 0 < len(small.actions) < len(failure.actions)
    again = simulate(small.seed, small.actions)
    undisturbed.cache_clear()
    assert isinstance(again, Failure)
    assert again.what == small.what
    assert "actions = [" in str(small)
