"""Order statistics that fix scales and kernel widths at the end of a warm-up: compiled, bounded, equal bits."""

from __future__ import annotations

import numpy as np

from kstream_worker.numerics.jit import inline

CLIP = 6.0  # scaled samples are clipped to +-6
_LARGEST = 1.7976931348623157e308


@inline
def select(values: np.ndarray, n: int, k: int) -> float:
    """The k-th smallest (from 0) of the first n entries, which it reorders (quickselect, middle pivot)."""
    low = 0
    high = n - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return float(values[k])


@inline
def quantile(values: np.ndarray, n: int, level: float) -> float:
    """Quantile by linear interpolation between order statistics (numpy's default); reorders the first n entries."""
    position = level * (n - 1)
    k = int(position)
    share = position - k
    low = select(values, n, k)
    if share == 0.0 or k + 1 >= n:
        return low
    return (1.0 - share) * low + share * select(values, n, k + 1)


@inline
def center_and_scale(values: np.ndarray, n: int) -> tuple[float, float]:
    """Median and robust scale of one feature over a warm-up; reorders the first n entries.

    The scale is IQR / 1.349; where that is <= 1e-9 |median|, (q95 - q5) / 3.29; where that is too, 1 (a constant
    feature: whatever moves it later is far away).

    Args:
        values: float64[>= n], finite, scratch.
        n: at least 1.
    """
    center = quantile(values, n, 0.5)
    floor = 1e-9 * abs(center)
    scale = quantile(values, n, 0.75) / 1.349 - quantile(values, n, 0.25) / 1.349
    if not scale > floor:
        scale = quantile(values, n, 0.95) / 3.29 - quantile(values, n, 0.05) / 3.29
    if not scale > floor:
        scale = 1.0
    return center, min(scale, _LARGEST)


@inline
def scale_sample(x: np.ndarray, center: np.ndarray, scale: np.ndarray, d: int, out: np.ndarray) -> None:
    """out[j] <- (x[j] - center[j]) / scale[j], clipped to +-6; finite for every finite x."""
    for j in range(d):
        z = (x[j] - center[j]) / scale[j]
        out[j] = min(max(z, -CLIP), CLIP)


@inline
def median_distance(sample: np.ndarray, n: int, d: int, distances: np.ndarray) -> float:
    """Median of the pairwise Euclidean distances that are not 0; 1 where all points coincide.

    Args:
        sample: float64[n * d], rows are points.
        n: points.
        d: features.
        distances: float64[>= n (n - 1) / 2], scratch.
    """
    count = 0
    for a in range(n):
        for b in range(a):
            total = 0.0
            for j in range(d):
                delta = sample[a * d + j] - sample[b * d + j]
                total += delta * delta
            if total > 0.0:
                distances[count] = total
                count += 1
    if count == 0:
        return 1.0
    middle = np.sqrt(select(distances, count, count // 2))
    if count % 2 == 1:
        return float(middle)
    return float(0.5 * (middle + np.sqrt(select(distances, count, count // 2 - 1))))
