"""A study as one JSON object; `schemas/calibration.schema.json` is its contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kstream_worker import __version__
from kstream_worker.calibration.changes import CHANGES
from kstream_worker.calibration.delays import Delay
from kstream_worker.calibration.propose import Proposal
from kstream_worker.calibration.rates import Rate
from kstream_worker.calibration.replay import Alarm
from kstream_worker.calibration.runs import Run, Settings
from kstream_worker.calibration.study import Input, KeyStudy, Study
from kstream_worker.state_tools.names import key_name

VERSION = 1
MOST_ALARMS = 200  # listed of one key


def document(study: Study, proposal: Proposal, app_id: str) -> dict[str, Any]:
    """The report: numbers, texts, booleans and None; no number that JSON does not know."""
    per_day = study.input.samples_per_day
    return {
        "version": VERSION,
        "release": __version__,
        "app_id": app_id,
        "features": list(study.features),
        "settings": asdict(study.settings),
        "input": _input(study.input),
        "changes": [{"name": change.name, "words": change.words} for change in CHANGES],
        "fleet": {
            **_rate(study.rate, study.configured.per_day(per_day), per_day),
            "guarantees": dict(sorted(study.guarantees().items())),
            "delays": [_delay(delay) for delay in study.delays],
            "run_lengths": [_run(run, per_day) for run in study.run_lengths],
        },
        "keys": [_key(key) for key in study.keys],
        "proposal": {
            "settings": [asdict(one) for one in proposal.settings],
            "notes": list(proposal.notes),
            "result": _run(proposal.run, per_day),
        },
    }


def _input(found: Input) -> dict[str, Any]:
    limits = found.limits
    return {
        "partitions": found.read.partitions,
        "records": found.read.records,
        "rejected": dict(sorted(found.read.rejected.items())),
        "samples": found.samples,
        "samples_per_day": found.samples_per_day,
        "keys": found.keys,
        "keys_are_exact": found.keys_are_exact,
        "first_time": _time(found.first_ms),
        "last_time": _time(found.last_ms),
        "most_keys": limits.keys,
        "most_samples_per_key": limits.samples,
        "from": limits.from_ms,
        "until": limits.until_ms,
    }


def _rate(rate: Rate, per_day: float | None, samples_per_day: float | None) -> dict[str, Any]:
    interval = rate.interval_per_1e5()
    return {
        "alarms_in_history": rate.alarms,
        "armed_samples": rate.armed,
        "alarms_allowed": rate.allowed,
        "alarms_per_1e5": rate.per_1e5,
        "alarms_per_1e5_interval": None if interval is None else list(interval),
        "stated_per_1e5": rate.stated_per_1e5,
        "alarms_per_day": per_day,
        "stated_per_day": stated_per_day(rate, samples_per_day),
        "probability_by_chance": rate.chance,
        "verdict": rate.verdict,
    }


def stated_per_day(rate: Rate, samples_per_day: float | None) -> float | None:
    """Most alarms of chance a day of so many samples, in the mean, if all of them were armed."""
    stated = rate.stated_per_1e5
    return None if samples_per_day is None or stated is None else samples_per_day * stated / 1e5


def _key(key: KeyStudy) -> dict[str, Any]:
    history, per_day = key.history, key.history.samples_per_day()
    alarms_per_day = None if per_day is None else key.rate.alarms / max(1, len(history)) * per_day
    return {
        "key": key_name(history.key),
        "partition": history.partition,
        "samples": len(history),
        "samples_left_out": history.left_out,
        "samples_warming": key.warming,
        "samples_raised": key.raised,
        "starts": len(history.starts),
        "first_time": _time(int(history.times.min())),
        "last_time": _time(int(history.times.max())),
        "samples_per_day": per_day,
        **_rate(key.rate, alarms_per_day, per_day),
        "guarantee": key.guarantee,
        "guarantee_reason": key.guarantee_reason,
        "guarantees_of_alarms": dict(sorted(key.guarantees.items())),
        "notices": dict(sorted(key.replay.notices.items())),
        "seasons": [asdict(season) for season in key.seasons],
        "horizon": key.trials.horizon,
        "delays": [_delay(delay) for delay in key.delays],
        "alarms": [_alarm(alarm) for alarm in key.replay.alarms[:MOST_ALARMS]],
    }


def _alarm(alarm: Alarm) -> dict[str, Any]:
    said = alarm.said
    return {
        "row": alarm.row,
        "event_time": _time(alarm.time_ms),
        "change_time": _time(said.change_time),
        "reason": said.reason,
        "direction": said.direction,
        "features": [name for name, _ in said.features[:5]],
        "guarantee": said.guarantee,
    }


def _delay(delay: Delay) -> dict[str, Any]:
    return {**asdict(delay), "share": delay.share}


def _run(run: Run, fleet_samples_per_day: float | None) -> dict[str, Any]:
    return {
        **asdict(run.settings),
        "alarms": run.alarms,
        "armed_samples": run.rate.armed,
        "armed_share": run.armed_share,
        "alarms_allowed": run.rate.allowed,
        "alarms_per_day": run.per_day(fleet_samples_per_day),
        "stated_per_day": stated_per_day(run.rate, fleet_samples_per_day),
    }


def _time(time_ms: int) -> int | None:
    return time_ms if time_ms >= 0 else None


def settings_of(settings: Settings) -> str:
    """In words."""
    dead_time = "the detector's own" if settings.dead_time_s is None else f"{settings.dead_time_s:g} s"
    return f"arl {settings.arl:g}, on_alarm {settings.on_alarm}, dead_time {dead_time}"
