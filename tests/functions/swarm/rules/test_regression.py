"""The regression is the textbook's, checked against slower ways to the same numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.stats import norm

from functions.swarm.rules import gaussian_process
from functions.swarm.rules.gaussian_process import Floats, Regression, fitted, log_expected_improvement
from functions.swarm.rules.gaussian_search import REPEATED, Beliefs

NOMINAL = np.array([False, False, True])


def points(count: int, seed: int = 1) -> Floats:
    """Two ranges and a category of three values."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.random(count), rng.random(count), rng.integers(3, size=count).astype(float)])


def truth(at: Floats) -> Floats:
    return np.asarray(np.sin(4 * at[:, 0]) + 0.7 * (at[:, 2] == 1))


def learned(count: int = 40, noise: float = 0.05, seed: int = 1) -> Regression:
    at = points(count, seed)
    return fitted(at, truth(at) + noise * np.random.default_rng(seed + 1).standard_normal(count), NOMINAL)


def test_the_posterior_is_that_of_the_joint_normal_distribution() -> None:
    model, others = learned(20), points(5, 9)
    values = model.root @ model.whitened
    covariance = model.covariance(model.points, model.points) + (
        model.noise + gaussian_process.JITTER
    ) * np.eye(20)
    across = model.covariance(model.points, others)

    mean, variance = model.predicted(others)

    inverse = np.linalg.inv(covariance)
    assert mean == pytest.approx(model.mean + model.scale * across.T @ inverse @ values)
    wanted = np.diag(model.covariance(others, others) - across.T @ inverse @ across)
    assert variance == pytest.approx(model.scale**2 * np.maximum(wanted, gaussian_process.JITTER))


@given(arrays(np.float64, 5, elements=st.floats(-2, 2)))
def test_the_gradient_is_that_of_the_density(logs: Floats) -> None:
    at = points(12)
    search = gaussian_process._ScaleSearch(at, truth(at), NOMINAL)
    _, gradient = search.loss(logs)
    slow = approx_fprime(logs, lambda x: search.loss(x)[0], 1e-6)
    assert gradient == pytest.approx(slow, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("z", [5.0, 1.0, 0.0, -0.99, -1.01, -3.0, -8.0])
@pytest.mark.parametrize("deviation", [1e-3, 1.0, 50.0])
def test_the_expected_improvement_is_the_integral(z: float, deviation: float) -> None:
    best = 2.0
    mean = best - z * deviation
    found = log_expected_improvement(np.array([mean]), np.array([deviation]), best)[0]
    slow, _ = quad(lambda u: u * norm.pdf(u - z), 0, max(z, 0) + 12, epsabs=0, epsrel=1e-10)
    assert found == pytest.approx(math.log(slow) + math.log(deviation), rel=1e-6, abs=1e-6)


def test_improvements_that_are_hardly_possible_still_have_an_order() -> None:
    far = np.array([-10.0, -100.0, -1e4, -1e8])
    found = log_expected_improvement(-far, np.ones(4), 0.0)
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) < 0)


def test_believing_a_value_is_learning_that_it_is_what_was_expected() -> None:

    model, others = learned(25), points(6, 9)
    beliefs = Beliefs(model, others)
    mean, _ = model.predicted(others)

    beliefs.believe([2])
    beliefs.believe([4])

    expected = (mean[[2, 4]] - model.mean) / model.scale
    more = np.concatenate([model.points, others[[2, 4]]])
    covariance = model.covariance(more, more) + np.diag(
        [model.noise + gaussian_process.JITTER] * 25 + [REPEATED] * 2
    )
    root: Floats = np.linalg.cholesky(covariance).astype(np.float64)
    whitened = np.linalg.solve(root, np.concatenate([model.root @ model.whitened, expected]))
    after = replace(model, points=more, root=root, whitened=whitened)
    assert after.predicted(others)[0] == pytest.approx(mean)
    assert beliefs.deviation**2 == pytest.approx(after.predicted(others)[1], rel=1e-6, abs=1e-5)
