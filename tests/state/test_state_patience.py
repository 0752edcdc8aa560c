"""How commands that people wait for ask a bus that does not answer."""

from __future__ import annotations

import pytest

from kstream_worker.bus.fake.clock import FakeClock
from kstream_worker.errors import Fatal, Retry
from kstream_worker.state_tools.place import persist


class Broker:
    """Answers from the `answers_at`-th second on; each question before takes a second."""

    def __init__(self, clock: FakeClock, answers_at: float) -> None:
        self._clock, self._answers_at = clock, answers_at

    def ask(self) -> str:
        if self._clock() >= self._answers_at:
            return "answer"
        self._clock.sleep(1.0)
        raise Retry("connecting to localhost:9099: no broker can be reached")


@pytest.mark.parametrize(("answers_at", "lines"), [(0.0, 0), (2.0, 0), (30.0, 1)])
def test_a_bus_that_takes_its_time_is_spoken_of_once(
    answers_at: float, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FakeClock()
    assert persist(Broker(clock, answers_at).ask, clock, clock.sleep) == "answer"
    said = capsys.readouterr()
    expected = "connecting to localhost:9099: no broker can be reached. Trying for a minute\n"
    assert (said.out, said.err) == ("", expected * lines)


def test_a_bus_that_never_answers_is_given_up() -> None:
    clock = FakeClock()
    with pytest.raises(Fatal, match=r"no broker can be reached.*Check that the brokers run"):
        persist(Broker(clock, 1e9).ask, clock, clock.sleep)
    assert 60.0 < clock() < 66.0
