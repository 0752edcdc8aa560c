"""Volatility that comes in clusters: innovations are divided by a size that is predicted from the former ones.

The prediction is that of Bollerslev, Generalized autoregressive conditional heteroskedasticity, Journal of Econometrics
31, 1986: h_t = omega v + alpha e_{t-1}^2 + beta h_{t-1}, v the variance of the warm-up; here a square counts at most
9 h, so that one spike does not blind the feature. The constants are fixed: fitted to the few hundred innovations of a
warm-up they are so uncertain that more clustering is left over. omega > 0 holds h near v: a lasting change of the
variance is followed in part only (to 1.75 v where it doubles), and so stays visible.
"""

from __future__ import annotations

import math

import numpy as np

from kstream_worker.numerics.jit import inline

VOL_TERMS = 2
MEAN_VARIANCE, VARIANCE = range(VOL_TERMS)  # v, which is 0 where nothing is divided; h

OMEGA, ALPHA, BETA = 0.02, 0.06, 0.92
CAP = 9.0
LEAST_VARIANCE = 1e-300  # below it squares are lost


@inline
def volatility_step(e: float, vol: np.ndarray) -> float:
    """e in units of its predicted size; then the prediction learns it.

    Args:
        e: innovation.
        vol: float64[2], v and h; changed.
    """
    h = vol[VARIANCE]
    vol[VARIANCE] = OMEGA * vol[MEAN_VARIANCE] + ALPHA * min(e * e, CAP * h) + BETA * h
    return float(e / math.sqrt(h))


@inline
def start_volatility(e: np.ndarray, n: int, vol: np.ndarray) -> None:
    """Start from the variance of n innovations; where that is next to nothing, nothing is divided.

    Args:
        e: float64[>= n].
        n: how many.
        vol: float64[2], filled.
    """
    variance = 0.0
    for i in range(n):
        variance += e[i] * e[i]
    variance = variance / n if variance > LEAST_VARIANCE * n else 0.0
    vol[MEAN_VARIANCE] = variance
    vol[VARIANCE] = variance
