"""Expected improvement: how much a config is worth that was not run."""

from __future__ import annotations

import math

import numpy as np

from functions.rules.swarm.gaussian_process.arrays import Floats

_FAR = -1.0
"""Below so many standard deviations the usual formula loses its digits."""


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """The logarithm of E[max(best - X, 0)] of normally distributed X; lower values are better.

    Jones et al. 1998; its logarithm, which is finite however unlikely an improvement is, after Ament et al. 2023.
    """
    from scipy.special import erfcx, ndtr

    z = (best - mean) / deviation
    near, far = np.maximum(z, _FAR), np.minimum(z, _FAR)
    usual = np.log(np.exp(-near * near / 2) / math.sqrt(2 * math.pi) + near * ndtr(near))
    # phi(z) + z Phi(z) = phi(z) (1 - |z| erfcx(|z| / sqrt 2) sqrt(pi / 2))
    rest = 1 + far * erfcx(-far / math.sqrt(2)) * math.sqrt(math.pi / 2)
    unusual = -far * far / 2 - math.log(2 * math.pi) / 2 + np.log(np.maximum(rest, 1 / (2 + far**4)))
    found: Floats = np.where(z > _FAR, usual, unusual) + np.log(deviation)
    return found


def chance_to_improve(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Pr(X < best) of normally distributed X."""
    from scipy.special import ndtr

    found: Floats = ndtr((best - mean) / deviation)
    return found
