"""All that is measured on the histories of some keys: rates, guarantees, delays, seasons, run lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kstream_worker.calibration.changes import CHANGES
from kstream_worker.calibration.delays import Delay, KeyTrials, Trials, try_changes
from kstream_worker.calibration.history import Collector, KeyHistory, Limits
from kstream_worker.calibration.rates import Rate, pooled
from kstream_worker.calibration.reading import Read
from kstream_worker.calibration.replay import ARMED, RAISED, WARMING, Replay, replay
from kstream_worker.calibration.runs import MakeBank, Run, Runs, Settings
from kstream_worker.calibration.seasons import Season, seasons_of
from kstream_worker.ports import Bank

RUN_LENGTHS = (1e3, 1e4, 1e5, 1e6)
NOT_ARMED = "not armed"


@dataclass(frozen=True, slots=True)
class Input:
    """Where the histories come from.

    Attributes:
        read: records and rejects.
        keys: different keys in the limits of time.
        keys_are_exact: whether all were counted.
        samples: of all keys in the limits of time.
        samples_per_day: of all keys, see `Days.mean`; None where event times are unknown.
        first_ms: smallest event time; -1 for unknown.
        last_ms: largest one.
        limits: what of it was looked at.
    """

    read: Read
    keys: int
    keys_are_exact: bool
    samples: int
    samples_per_day: float | None
    first_ms: int
    last_ms: int
    limits: Limits

    @classmethod
    def of(cls, read: Read, collector: Collector, limits: Limits) -> Input:
        """What was collected."""
        days = collector.days
        counts = (collector.keys, collector.keys_are_exact, collector.taken)
        return cls(read, *counts, days.mean(), days.first_ms, days.last_ms, limits)


@dataclass(frozen=True, slots=True)
class KeyStudy:
    """One key.

    Attributes:
        history: its samples.
        replay: of the configured detector.
        rate: alarms in history beside the stated rate.
        trials: changes put in.
        delays: their summaries, in the order of `CHANGES`.
        guarantee: `exact_if_iid`, `approximate`, `none`, or `not armed`: of the last arming.
        guarantee_reason: why, in words.
        guarantees: of the alarms in history, how often each.
        seasons: daily and weekly ones that were found.
    """

    history: KeyHistory
    replay: Replay
    rate: Rate
    trials: KeyTrials
    delays: tuple[Delay, ...]
    guarantee: str
    guarantee_reason: str
    guarantees: Counter[str]
    seasons: tuple[Season, ...]

    @property
    def warming(self) -> int:
        """Samples that only taught the detector."""
        return self.replay.count(WARMING)

    @property
    def raised(self) -> int:
        """Samples while an alarm was up and none could be raised."""
        return self.replay.count(RAISED)


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was measured.

    Attributes:
        input: where from.
        features: names.
        settings: configured.
        keys: each of them.
        configured: all keys together.
        run_lengths: the configured detector at several stated run lengths, ascending.
        delays: all keys together, in the order of `CHANGES`.
    """

    input: Input
    features: tuple[str, ...]
    settings: Settings
    keys: tuple[KeyStudy, ...]
    configured: Run
    run_lengths: tuple[Run, ...]
    delays: tuple[Delay, ...] = field(default=())

    @property
    def rate(self) -> Rate:
        """Of the configured detector, all keys together."""
        return pooled(key.rate for key in self.keys)

    def guarantees(self) -> Counter[str]:
        """Keys by what they are armed with."""
        return Counter(key.guarantee for key in self.keys)


def study(
    input: Input,
    features: tuple[str, ...],
    settings: Settings,
    histories: Sequence[KeyHistory],
    make_bank: MakeBank,
    seed: int,
    report: Callable[[str], None],
) -> tuple[Study, Runs]:
    """Measure; the runs can be asked for more settings.

    Args:
        input: where the histories come from.
        features: names.
        settings: configured.
        histories: at least one.
        make_bank: of the configured detector.
        seed: of the places at which changes are put in.
        report: told what is done next, for people.
    """
    runs = Runs(make_bank, histories, report)
    bank = make_bank(settings)
    keys = []
    for number, history in enumerate(histories, 1):
        report(f"key {number} of {len(histories)}: {len(history)} samples")
        keys.append(_study_key(bank, history, features, settings, seed))
    configured = runs.keep(settings, [key.replay for key in keys])
    arls = sorted({*RUN_LENGTHS, settings.arl})
    others = tuple(runs.run(Settings(arl, settings.on_alarm, settings.dead_time_s)) for arl in arls)
    return Study(input, features, settings, tuple(keys), configured, others, _delays_of_all(keys)), runs


def _study_key(bank: Bank, history: KeyHistory, features: tuple[str, ...], settings: Settings, seed: int) -> KeyStudy:
    found = replay(bank, history)
    trials = try_changes(bank, history, found, seed)
    never = NOT_ARMED, "The history is shorter than a warm-up: no alarm is possible yet."
    guarantee, reason = trials.last_arming or never
    return KeyStudy(
        history,
        found,
        Rate(len(found.alarms), found.count(ARMED), found.count(ARMED) / settings.arl),
        trials,
        tuple(Delay.of(change.name, trials.by_change[change.name]) for change in CHANGES),
        guarantee,
        reason,
        Counter(alarm.said.guarantee for alarm in found.alarms),
        tuple(seasons_of(features, history.times, history.y)),
    )


def _delays_of_all(keys: Sequence[KeyStudy]) -> tuple[Delay, ...]:
    found = []
    for change in CHANGES:
        trials = Trials()
        for key in keys:
            trials.extend(key.trials.by_change[change.name])
        found.append(Delay.of(change.name, trials))
    return tuple(found)
