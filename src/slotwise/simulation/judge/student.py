"""Student's law for n whole degrees of freedom, in closed form; with theta = atan(t / sqrt(n)) and c = cos(theta)^2,

    P(|T| < t) = sin(theta) (1 + c/2 + (1 3)/(2 4) c^2 + ...)                          n even, n / 2 terms
               = 2/pi (theta + sin(theta) cos(theta) (1 + 2/3 c + (2 4)/(3 5) c^2 + ...))   n odd, (n - 1) / 2 terms

(Abramowitz and Stegun 26.7.3 and 26.7.4). A few terms, where SciPy's special functions take longer to import than
most runs to simulate.
"""

from __future__ import annotations

import math
from functools import lru_cache


def within(t: float, n: int) -> float:
    """Return P(|T| < t), t >= 0."""
    theta = math.atan2(t, math.sqrt(n))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = n % 2
    term, total = 1.0, 0.0
    for k in range(n // 2):
        total += term
        term *= cosine * cosine * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    if odd:
        return 2 / math.pi * (theta + sine * cosine * total)
    return sine * total


@lru_cache(maxsize=256)
def half_width(level: float, n: int) -> float:
    """Return the t >= 0 with P(|T| < t) = level < 1.

    P is concave in t >= 0, so Newton's steps from 0 climb to the root and never pass it.
    """
    scale = 2 * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(n * math.pi)
    t = 0.0
    while True:
        step = (level - within(t, n)) / (scale * (1 + t * t / n) ** (-(n + 1) / 2))
        if step <= 1e-15 * t:
            return t
        t += step
