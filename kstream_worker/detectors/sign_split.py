"""Where in the last pairs did a score begin to differ between the sides? A Bayesian split of signs, compiled.

While both sides of a pair could be swapped, the sign of a difference D = s(y) - s(x) is a fair coin, whatever |D| is
(`battery`). For the law after a change there are two halves of a prior. One half: the bets of the detector, 1 + c b and
1 - c b, each a density of the sign, equally likely; b = tanh(D / u), u the median size of what differs over .6745. The
other: signs have an unknown probability, with a Dirichlet prior (1/2, 1/2), whose likelihood is Polya's urn. So the
likelihood of a change before pair k against none is

    e^l(k) = 1/2 mean over bets of prod (1 +- c b_t) + 1/2 prod 2 (1/2 + n_sign) / (1 + n),

products over t >= k, n counting the pairs after t, n_sign those of the sign of t. Given all |D| the law of signs before
the change is known, so nothing is estimated there, and what both sides do together is no change. As in `splitting`,
e^l(k) is up to a factor the posterior law of the first changed pair.
"""

from __future__ import annotations

import numpy as np

from kstream_worker.detectors.battery import STAKES
from kstream_worker.detectors.splitting import mixed
from kstream_worker.models.scaling import select
from kstream_worker.numerics.jit import inline, jit
from kstream_worker.numerics.math import log, tanh

_HALF_NORMAL = 0.6745  # median of |z| of a standard normal z
_PRIOR = 0.5


@jit
def split_signs(differences: np.ndarray, likelihood: np.ndarray) -> None:
    """l of a change before each pair.

    Args:
        differences: float64[n], D of one score, oldest first.
        likelihood: float64[n], filled.
    """
    unit = _unit(differences)
    counts = np.zeros(2)
    paid = np.zeros(2 * len(STAKES))
    urn = 0.0
    for i in range(len(differences) - 1, -1, -1):
        if differences[i] != 0.0:
            sign = 1 if differences[i] > 0.0 else 0
            urn += log(2.0 * (_PRIOR + counts[sign]) / (2.0 * _PRIOR + counts[0] + counts[1]))
            counts[sign] += 1.0
            b = tanh(differences[i] / unit)
            for c in range(len(STAKES)):
                paid[2 * c] += log(1.0 + STAKES[c] * b)
                paid[2 * c + 1] += log(1.0 - STAKES[c] * b)
        likelihood[i] = mixed(urn, paid)


@inline
def _unit(differences: np.ndarray) -> float:
    sizes = np.empty(len(differences))
    n = 0
    for d in differences:
        if d != 0.0:
            sizes[n] = abs(d)
            n += 1
    unit: float = select(sizes, n, n // 2) / _HALF_NORMAL if n > 0 else 1.0
    return unit
