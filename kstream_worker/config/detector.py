"""Section `detector`: when a change is an alarm."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc, duration

# A key that never comes to rest raises at most 24 alarms at once, then less than four a day (with `arl` a million and
# the default decay); the next change of its own is found at the price of some 16 % more evidence.
DEFAULT_ESCALATION = 10.0


class DetectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The false-alarm rate, and what happens around an alarm."""

    arl: Annotated[
        float,
        doc("Average run length: samples of one key between false alarms, at least, when nothing changes.", gt=1),
    ] = 1_000_000.0
    warmup: Annotated[
        int | None,
        doc("Samples of a key before it is armed. None: the detector's own default.", ge=8, le=1_000_000),
    ] = None
    dependence: Annotated[
        Literal["auto", "none", "whiten", "thin", "block"],
        doc(
            "`stream`, and scores of models: what is done about serial dependence. `auto` tests the warm-up and "
            "whitens where needed. `thin` ranks one of so many samples, `block` means of so many. Whatever is done "
            "makes the stated rate approximate. `explicit` and `reference`: a test alone (`auto`), or none."
        ),
    ] = "auto"
    period: Annotated[
        tuple[str, ...] | None,
        doc(
            "`stream`: seasons that are taken out: up to three durations (`1d`, `[1d, 7d]`), or `auto`: a day and a "
            "week, once they are found. None: no season."
        ),
    ] = None
    time_zone: Annotated[
        str, doc("Whose civil time seasons follow, changes of the clock included: a name of the tz database.")
    ] = "UTC"
    profile: Annotated[
        Literal["default", "compact"],
        doc(
            "`stream`, and scores of models: memory per key. `compact` keeps a quarter of the samples and half the "
            "kernels: slow drifts are found later or not at all; the stated rate is the same."
        ),
    ] = "default"
    spikes: Annotated[
        bool,
        doc(
            "`stream`: whether single samples far out are bet on, beyond what ranks can say. An alarm of that score "
            "(`spike(...)`) has the guarantee `approximate`; the others keep theirs."
        ),
    ] = True
    transform: Annotated[
        Literal["auto", "none", "sqrt"],
        doc(
            "`stream`: square roots of features, for counts. `auto` takes them where the warm-up is never negative and "
            "holds zeros or is skewed to the right."
        ),
    ] = "auto"
    on_alarm: Annotated[
        Literal["rebase", "hold"],
        doc("`rebase`: learn the new normal and arm again. `hold`: go on against the old one, with reminders."),
    ] = "rebase"
    dead_time: Annotated[float, duration("Event time after an alarm in which the same key raises no further one.")] = (
        0.0
    )
    escalation: Annotated[
        float | None,
        doc(
            "Factor by which each alarm raises its key's own threshold; 1: not at all. None: 10, or 1 for lines of "
            "files without `input.timestamp`, where there is no time in which it could decay.",
            ge=1,
            le=1_000_000,
        ),
    ] = None
    escalation_decay: Annotated[
        float,
        duration(
            "Event time after an alarm in which that factor falls to 1, linearly on a logarithmic scale.", ge=0.001
        ),
    ] = 604_800.0
    fleet_false_alarms_per_day: Annotated[
        float | None,
        doc(
            "Instead of `arl`: false alarms per day that all keys together may raise. Each key's run length then "
            "follows from its own rate of samples in its warm-up.",
            gt=0,
        ),
    ] = None
    fleet_keys: Annotated[
        int | None,
        doc("Keys that share `fleet_false_alarms_per_day`, over all processes.", ge=1),
    ] = None

    silence: Annotated[
        float,
        duration(
            "A key is in alarm after so much event time of its partition without a record of its own, until its next "
            "record. 0: never."
        ),
    ] = 0.0

    @property
    def shared(self) -> bool:
        """Whether all keys together have a number of false alarms, instead of each a run length."""
        return self.fleet_keys is not None and self.fleet_false_alarms_per_day is not None

    @property
    def stated_arl(self) -> float:
        """What detectors are set to: samples between false alarms of one key, or days where these are shared."""
        if self.fleet_keys is None or self.fleet_false_alarms_per_day is None:
            return self.arl
        return self.fleet_keys / self.fleet_false_alarms_per_day
