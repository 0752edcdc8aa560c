"""From what was measured to settings, each with its reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kstream_worker.calibration.runs import Run, Runs, Settings
from kstream_worker.calibration.seasons import DAY_S, Season
from kstream_worker.calibration.study import Study
from kstream_worker.config import DetectorConfig
from kstream_worker.state_tools.names import key_name

LOWEST_ARL = 1_000.0
OWN_DEAD_TIME_S = DetectorConfig().dead_time  # the detector's own
_DEAD_TIMES_S = (600.0, 3_600.0, 21_600.0, 86_400.0)
_REPEATS = 1.25  # alarms that may be left, in those that a dead time of a day leaves
_MOST_DECADES = 3
_PAYS = 0.7  # of the alarms may be left at ten times the run length, else more of it is no remedy
_BLIND = 0.1  # of all samples: to be armed at so many more of them is better


@dataclass(frozen=True, slots=True)
class Proposed:
    """A setting of section `detector`, None for its default, and why."""

    key: str
    value: float | str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Settings, remarks, and what the settings give on the same history.

    Attributes:
        settings: proposed, in the order of the section.
        notes: what no setting says.
        run: with all of them.
        per_day: alarms of the fleet that this run comes to; None where event times are unknown.
    """

    settings: tuple[Proposed, ...]
    notes: tuple[str, ...]
    run: Run
    per_day: float | None


def propose(study: Study, runs: Runs, false_alarms_per_day: float, *, timed: bool) -> Proposal:
    """Settings for a wanted number of false alarms of the whole fleet.

    Args:
        study: what was measured.
        runs: of the same histories.
        false_alarms_per_day: wanted, at most, of all keys together.
        timed: whether records have event times that a dead time can be counted in.
    """
    configured = study.settings
    arl, arl_reason = _arl(study, runs, false_alarms_per_day)
    on_alarm, on_alarm_reason = choose_on_alarm(runs, replace(configured, arl=arl, dead_time_s=OWN_DEAD_TIME_S))
    chosen = Settings(arl, on_alarm, OWN_DEAD_TIME_S)
    dead_time, dead_time_reason = _dead_time(study, runs.run(chosen), timed=timed)
    run = runs.run(replace(chosen, dead_time_s=dead_time))
    per_day = run.per_day(study.input.samples_per_day)
    settings = (
        Proposed("arl", arl, arl_reason),
        Proposed("on_alarm", on_alarm, on_alarm_reason),
        Proposed("dead_time", dead_time, dead_time_reason),
    )
    notes = (_measured(study, run, per_day), *_guarantee_notes(study), *_season_notes(study))
    return Proposal(settings, notes, run, per_day)


def _arl(study: Study, runs: Runs, wanted: float) -> tuple[float, str]:
    rate = study.input.samples_per_day
    if rate is None:
        return study.settings.arl, (
            "As configured: event times are unknown, so a number of alarms a day says nothing about one of samples. "
            "Bind input.timestamp, and calibrate again."
        )
    value = max(LOWEST_ARL, _rounded_up(rate / wanted))
    keys = f"{study.input.keys:,}{'' if study.input.keys_are_exact else ' or more'} keys"
    why = (
        f"{rate:,.0f} samples a day of {keys}, divided by {value:,.0f}: at most {rate / value:.3g} false alarms a day "
        f"of all keys in the mean, where the stated rate holds; wanted were {wanted:g}."
    )
    if value == LOWEST_ARL:
        why += f" Not below {LOWEST_ARL:,.0f}: a key must be armed for longer than it takes to warm up."
    higher = climb(runs, replace(study.settings, arl=value), rate, wanted)
    if higher > value:
        why += (
            " This history raises more than that, and fewer the higher arl is, so not all of its alarms are of "
            f"changes: {higher / value:,.0f} times as much."
        )
    return higher, why


def climb(runs: Runs, settings: Settings, samples_per_day: float, wanted: float) -> float:
    """The run length, raised by decades as long as history raises more than is wanted and each buys enough silence.

    Args:
        runs: of the same histories.
        settings: to begin with.
        samples_per_day: of all keys of the input.
        wanted: alarms of all keys a day.
    """
    run = runs.run(settings)
    for _ in range(_MOST_DECADES):
        if run.rate.verdict != "more" or (run.per_day(samples_per_day) or 0.0) <= wanted:
            break
        above = runs.run(replace(run.settings, arl=10.0 * run.settings.arl))
        if above.alarms > _PAYS * run.alarms:
            break
        run = above
    return run.settings.arl


def _rounded_up(value: float) -> float:
    """To two significant digits."""
    if not value > 0.0:
        return LOWEST_ARL
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit - 1e-9) * unit


def choose_on_alarm(runs: Runs, settings: Settings) -> tuple[str, str]:
    """What is configured, unless the other is clearly better; and why.

    Args:
        runs: of the same histories.
        settings: the configured ones.
    """
    configured = runs.run(settings)
    other = runs.run(replace(settings, on_alarm="hold" if settings.on_alarm == "rebase" else "rebase"))
    measured = "On this history " + ", ".join(
        f"{run.settings.on_alarm} raises {run.alarms} alarms and is armed at {run.armed_share:.1%} of the samples"
        for run in (configured, other)
    )
    if other.armed_share > configured.armed_share + _BLIND and other.alarms <= configured.alarms:
        return other.settings.on_alarm, f"{measured}: it sees more, and raises no more alarms."
    if other.armed_share >= configured.armed_share - _BLIND and 2 * other.alarms < configured.alarms:
        return other.settings.on_alarm, f"{measured}: less than half as many alarms, and not for being blind."
    return settings.on_alarm, f"{measured}: no reason to change what is configured."


def _dead_time(study: Study, run: Run, *, timed: bool) -> tuple[float | None, str]:
    if not timed or study.input.samples_per_day is None:
        return OWN_DEAD_TIME_S, "Dead time is event time, and these records have none: bind input.timestamp."
    left = {dead: sum(left_after(times, dead) for times in run.alarm_times) for dead in _DEAD_TIMES_S}
    longest = left[_DEAD_TIMES_S[-1]]
    if run.alarms <= _REPEATS * longest:
        return OWN_DEAD_TIME_S, (
            f"Of {run.alarms} alarms {run.alarms - longest} come within a day of another one of their key: too few to "
            "be silent for."
        )
    value = next(dead for dead in _DEAD_TIMES_S if left[dead] <= _REPEATS * longest)
    return value, (
        f"Of {run.alarms} alarms {run.alarms - longest} come within a day of another one of their key; with this dead "
        f"time about {left[value]} are left, with a day {longest}."
    )


def left_after(times: Sequence[int], dead_time_s: float) -> int:
    """Alarms of a key that are left when none follows another within a dead time; times in milliseconds, ascending."""
    count, until = 0, -math.inf
    for time_ms in times:
        if time_ms >= until:
            count, until = count + 1, time_ms + 1000 * dead_time_s
    return count


def _measured(study: Study, run: Run, per_day: float | None) -> str:
    said = f"With these settings this history raises {run.alarms} alarms"
    if per_day is not None:
        said += f", which is {per_day:.3g} a day for all keys"
    allowed = run.rate.allowed
    said += f"; chance explains {allowed:.3g} of them in the mean at the stated rate."
    if run.rate.verdict != "more":
        return said
    loudest = sorted(zip(run.alarm_times, study.keys, strict=True), key=lambda pair: -len(pair[0]))[:3]
    names = ", ".join(f"{key_name(key.history.key)} ({len(times)})" for times, key in loudest if times)
    return (
        f"{said} The others are real changes, or the stated rate does not hold for these keys: look at their times "
        f"(history.png), most of them are of {names}."
    )


def _guarantee_notes(study: Study) -> list[str]:
    counts = study.guarantees()
    notes = []
    if counts["none"]:
        notes.append(
            f"dependence: {counts['none']} of {len(study.keys)} keys are armed without a guarantee. Most often: "
            f"{_usual_reason(study, 'none')}"
        )
    if counts["approximate"]:
        notes.append(
            f"dependence: {counts['approximate']} of {len(study.keys)} keys have an approximate guarantee; the "
            f"measured rate above is the test of it. Most often: {_usual_reason(study, 'approximate')}"
        )
    if counts["exact_if_iid"] == len(study.keys):
        notes.append(
            "dependence: none was found in the last warm-up of any key, where that is tested; leave it at its default."
        )
    return notes


def _usual_reason(study: Study, level: str) -> str:
    reasons = Counter(key.guarantee_reason for key in study.keys if key.guarantee == level)
    return reasons.most_common(1)[0][0]


def _season_notes(study: Study) -> list[str]:
    seasons = [season for key in study.keys for season in key.seasons]
    keys = sum(bool(key.seasons) for key in study.keys)
    if not seasons:
        return []
    best: Season = max(seasons, key=lambda season: season.share)
    period = "daily" if best.period_s == DAY_S else "weekly"
    return [
        f"period: {keys} of {len(study.keys)} keys have a daily or weekly season; the strongest is a {period} one of "
        f"{best.feature}, which explains {best.share:.0%} of the variance. A season that is not modelled costs power, "
        "or false alarms: `detector.period` takes it out of a stream."
    ]
