"""What the terminal shows of a study."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from kstream_worker.calibration.delays import Delay
from kstream_worker.calibration.propose import Proposal, Proposed
from kstream_worker.calibration.rates import WORDS, Rate
from kstream_worker.calibration.report import settings_of, stated_per_day
from kstream_worker.calibration.study import Study
from kstream_worker.config.units import format_duration
from kstream_worker.state_tools.listing import table
from kstream_worker.state_tools.names import key_name, time_name

_WIDTH = 110
MOST_KEYS = 30  # shown; all are in calibration.json

_KEY_HEADINGS = ("key", "samples", "a day", "armed", "alarms", "allowed", "per 1e5 (95 %)", "than stated", "guarantee")
_LEFT = frozenset({"key", "change put in", "than stated", "guarantee"})
_DELAY_HEADINGS = ("change put in", "places", "found", "median", "90 %", "median time", "90 % time")
_RUN_HEADINGS = ("arl", "alarms", "allowed", "a day, all keys", "stated a day")


def lines(study: Study, proposal: Proposal) -> Iterator[str]:
    """All of it."""
    yield from _heading(study)
    yield ""
    yield from _rates(study)
    yield ""
    yield from _reasons(study)
    yield ""
    yield from _folded(
        "Changes put into each key's own history, one at a time; one not found within "
        f"{_horizons(study)} samples counts as missed:"
    )
    yield from table(_DELAY_HEADINGS, [_delay_cells(delay) for delay in study.delays], _LEFT)
    yield ""
    yield "The same history at other run lengths (alarms of chance get fewer as arl grows, those of changes stay):"
    yield from table(_RUN_HEADINGS, _run_rows(study), _LEFT)
    yield ""
    yield from _proposed(proposal)


def _heading(study: Study) -> Iterator[str]:
    found = study.input
    rejected = found.read.rejected
    refused = f", {rejected.total():,} refused (most often {rejected.most_common(1)[0][0]})" if rejected else ""
    more = "" if found.keys_are_exact else " or more"
    span = f", {time_name(found.first_ms)} to {time_name(found.last_ms)}" if found.first_ms >= 0 else ""
    yield f"{found.read.records:,} records read{refused}; {found.samples:,} samples of {found.keys:,}{more} keys{span}."
    if len(study.keys) < found.keys:
        yield f"Looked at: a random sample of {len(study.keys)} keys."
    left_out = sum(key.history.left_out for key in study.keys)
    if left_out:
        yield f"Of a key the newest {found.limits.samples:,} samples are looked at: {left_out:,} older ones are not."
    yield f"Configured: {settings_of(study.settings)}."


def _rates(study: Study) -> Iterator[str]:
    rows = [
        (
            key_name(key.history.key),
            f"{len(key.history):,}",
            _number(key.history.samples_per_day()),
            f"{key.rate.armed / max(1, len(key.history)):.0%}",
            *_rate_cells(key.rate),
            key.guarantee,
        )
        for key in sorted(study.keys, key=lambda key: -key.rate.alarms)[:MOST_KEYS]
    ]
    run = study.configured
    everything = ("all", f"{sum(run.samples):,}", _number(study.input.samples_per_day), f"{run.armed_share:.0%}")
    yield from table(_KEY_HEADINGS, [*rows, (*everything, *_rate_cells(study.rate), "")], _LEFT)
    if len(study.keys) > MOST_KEYS:
        yield f"... and {len(study.keys) - MOST_KEYS} keys with fewer alarms, in calibration.json"
    rate, per_day = study.rate, run.per_day(study.input.samples_per_day)
    yield ""
    if rate.stated_per_1e5 is None:
        yield "No key was ever armed: the history is shorter than a warm-up."
        return
    yield from _folded(
        f"Stated: at most {rate.stated_per_1e5:.3g} alarms per 1e5 samples in the mean. Found: {WORDS[rate.verdict]}."
    )
    stated = stated_per_day(rate, study.input.samples_per_day)
    if per_day is not None and stated is not None:
        yield f"All keys together: {per_day:.3g} alarms a day in history; {stated:.3g} a day stated."
    yield "Alarms in history may be right: it may hold real changes, which nobody has marked."


def _rate_cells(rate: Rate) -> tuple[str, ...]:
    interval = rate.interval_per_1e5()
    shown = "-" if interval is None else f"{rate.per_1e5:.3g} ({interval[0]:.2g} to {interval[1]:.2g})"
    return str(rate.alarms), f"{rate.allowed:.2g}", shown, rate.verdict


def _reasons(study: Study) -> Iterator[str]:
    """Each level of guarantee with its most frequent reason."""
    for level, count in study.guarantees().most_common():
        reasons = [key.guarantee_reason for key in study.keys if key.guarantee == level]
        yield from _folded(
            f"{count} of {len(study.keys)} keys, {level}: {max(sorted(set(reasons)), key=reasons.count)}"
        )


def _horizons(study: Study) -> str:
    found = sorted(key.trials.horizon for key in study.keys if key.trials.horizon)
    if not found:
        return "0 (the history is too short)"
    return f"{found[0]:,}" if found[0] == found[-1] else f"{found[0]:,} to {found[-1]:,}"


def _delay_cells(delay: Delay) -> tuple[str, ...]:
    def samples(value: int | None) -> str:
        return "-" if not delay.places else "beyond" if value is None else str(value)

    def time(value: float | None) -> str:
        return "-" if value is None else _duration(value)

    share = "-" if delay.share is None else f"{delay.share:.0%}"
    return (
        delay.change,
        str(delay.places),
        share,
        samples(delay.median_samples),
        samples(delay.p90_samples),
        time(delay.median_s),
        time(delay.p90_s),
    )


def _run_rows(study: Study) -> list[tuple[str, ...]]:
    rate = study.input.samples_per_day
    return [
        (
            f"{run.settings.arl:g}",
            str(run.alarms),
            f"{run.rate.allowed:.3g}",
            _number(run.per_day(rate)),
            _number(stated_per_day(run.rate, rate)),
        )
        for run in study.run_lengths
    ]


def _proposed(proposal: Proposal) -> Iterator[str]:
    yield "Proposed (proposed.toml):"
    for one in proposal.settings:
        yield f"  {one.key} = {_shown(one)}"
        yield from _folded(one.reason, "      ")
    for note in proposal.notes:
        yield from _folded(f"- {note}", "  ")


def _shown(one: Proposed) -> str:
    if one.value is None:
        return "(the default)"
    if isinstance(one.value, str):
        return one.value
    return _duration(one.value) if one.key == "dead_time" else f"{one.value:,.0f}"


def _folded(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _duration(seconds: float) -> str:
    """To about three digits in the largest unit that fits."""
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= length:
            return format_duration(seconds) if seconds % length == 0 else f"{seconds / length:.3g}{unit}"
    return f"{seconds:.3g}s"
