"""Section `detector`: when a change is an alarm."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc, duration


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
        Literal["auto", "none", "whiten"],
        doc(
            "`stream`, and scores of models: what is done about serial dependence. `auto` tests the warm-up and "
            "whitens where needed; whitened, the stated rate is approximate."
        ),
    ] = "auto"
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
        doc("`rebase`: learn the new normal and arm again. `hold`: stay raised against the old one."),
    ] = "rebase"
    dead_time: Annotated[float, duration("Event time after an alarm in which the same key raises no further one.")] = (
        0.0
    )
