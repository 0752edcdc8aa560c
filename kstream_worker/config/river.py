"""Section `river`: a regressor of River for each value of y."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from kstream_worker.config.fields import doc


class RiverConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prediction of y from x by a model of River (`pip install 'kstream-worker[river]'`)."""

    model: Annotated[
        str,
        doc(
            "`linear_model.LinearRegression` (stochastic gradients) or `linear_model.PARegressor` "
            "(passive-aggressive). Others are refused: the state of a key must be a fixed set of numbers."
        ),
    ] = "linear_model.LinearRegression"
    scaler: Annotated[
        Literal["standard", "none"], doc("`standard`: x goes through `preprocessing.StandardScaler` first.")
    ] = "standard"
    settle: Annotated[int, doc("Pairs of a key before its errors are ranked: they are high at first.", ge=1)] = 500
    lr: Annotated[float, doc("`LinearRegression`: step size.", gt=0, le=1)] = 0.01
    l2: Annotated[float, doc("`LinearRegression`: penalty on the weights.", ge=0)] = 0.0
    aggressiveness: Annotated[float, doc("`PARegressor`: bound of a step, C.", gt=0)] = 0.01
    epsilon: Annotated[float, doc("`PARegressor`: errors up to here teach nothing.", ge=0)] = 0.1
