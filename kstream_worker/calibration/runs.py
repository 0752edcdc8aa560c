"""The detector under several settings on the same histories: how its alarms change with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kstream_worker.calibration.history import KeyHistory
from kstream_worker.calibration.rates import Rate
from kstream_worker.calibration.replay import ARMED, WARMING, Replay, replay
from kstream_worker.ports import Bank


@dataclass(frozen=True, slots=True)
class Settings:
    """Those of a detector that are varied.

    Attributes:
        arl: stated average run length, in samples of one key.
        on_alarm: `rebase` or `hold`.
        dead_time_s: event time after an alarm without a further one of the same key, seconds; None for the detector's
            own.
    """

    arl: float
    on_alarm: str
    dead_time_s: float | None


class MakeBank(Protocol):
    """Makes an empty bank of the configured detector with other settings."""

    def __call__(self, settings: Settings) -> Bank:
        """The bank."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """What one setting gives on all histories.

    Attributes:
        settings: these.
        alarm_times: event times of the alarms of each key, milliseconds, -1 where unknown.
        armed: samples of each key at which an alarm was possible.
        warming: samples of each key that only taught the detector.
        samples: of each key.
    """

    settings: Settings
    alarm_times: tuple[tuple[int, ...], ...]
    armed: tuple[int, ...]
    warming: tuple[int, ...]
    samples: tuple[int, ...]

    @property
    def rate(self) -> Rate:
        """Of all keys together."""
        armed = sum(self.armed)
        return Rate(self.alarms, armed, armed / self.settings.arl)

    @property
    def alarms(self) -> int:
        """Of all keys."""
        return sum(map(len, self.alarm_times))

    @property
    def armed_share(self) -> float:
        """Of all samples."""
        return sum(self.armed) / max(1, sum(self.samples))

    def per_day(self, fleet_samples_per_day: float | None) -> float | None:
        """Alarms a day where the fleet has so many samples a day and behaves as these keys do; None for unknown."""
        if fleet_samples_per_day is None or not sum(self.samples):
            return None
        return self.alarms / sum(self.samples) * fleet_samples_per_day


class Runs:
    """Runs settings on histories, each setting once.

    Args:
        make_bank: of the configured detector.
        histories: of the keys.
        report: told what is done next, for people.
    """

    def __init__(self, make_bank: MakeBank, histories: Sequence[KeyHistory], report: Callable[[str], None]) -> None:
        self._make_bank = make_bank
        self._histories = histories
        self._report = report
        self._done: dict[Settings, Run] = {}

    def run(self, settings: Settings) -> Run:
        """The run of these settings."""
        if settings not in self._done:
            self._report(f"replaying with arl {settings.arl:g}, on_alarm {settings.on_alarm}")
            bank = self._make_bank(settings)
            self.keep(settings, [replay(bank, history) for history in self._histories])
        return self._done[settings]

    def keep(self, settings: Settings, replays: Sequence[Replay]) -> Run:
        """Take over what was replayed elsewhere."""
        run = Run(
            settings,
            tuple(tuple(alarm.time_ms for alarm in one.alarms) for one in replays),
            tuple(one.count(ARMED) for one in replays),
            tuple(one.count(WARMING) for one in replays),
            tuple(map(len, self._histories)),
        )
        self._done[settings] = run
        return run
