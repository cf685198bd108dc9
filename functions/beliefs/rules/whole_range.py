"""Irrelevance: the effect of a claim's dimensions is within the margin over their whole range.

The range has sections (`functions/swarm/rules/rooms.py`). Each run of a claim lies in a section, or is a reference
run. Least squares over these runs estimate the difference of each section from the reference config. The model has an
effect of each worker, which removes its baseline error. Runs without a partner count, too.

An effect is irrelevant if both of these hold, each with an e-value of 20 or more:
- no section differs from the reference config by the margin;
- no section differs from another by 1.5 margins. This finds a slope of two margins around the reference config.

The next runs go where evidence lacks (`lacking`), so that one unlucky section does not hold up the verdict.

A difference of that size or more passes with probability 1/20 at most, however often one looks (Ville 1939;
mixtures: Robbins, Ann. Math. Stat. 41, 1970). All differences have to pass, so their number needs no correction
(intersection-union test, Berger, Technometrics 24, 1982). The variance comes from repeats of one config by one
worker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import combinations, product

from functions.beliefs.rules.evidence import about, is_reference
from functions.beliefs.rules.posterior import ENOUGH_E_VALUE
from functions.beliefs.rules.terms import BeliefTerms, FinishedRun
from functions.swarm.rules.rooms import Sections, is_alone, section_of, sections_of_claim
from state.records import Hypothesis

ENOUGH_RUNS = 40
"""Runs in all sections that irrelevance needs."""
ENOUGH_REPEATS = 20
"""Degrees of freedom of sigma that irrelevance needs, because the margin is in sigmas."""
BETWEEN = 1.5
"""Margins by which two sections must not differ."""
MOST_BLOCKS = 128
"""Blocks that are kept for a hypothesis; the oldest are dropped."""
MOST_SECTIONS = 64
"""Most combinations of sections; a claim with more of them is never irrelevant."""
LEAST_E_VALUE = 0.05
"""E-value below which a section lacks no more evidence: more runs would not help it."""
SMALLEST_SIGMA = 1e-12
"""Sigma where all repeats are equal; the sections must then be equal but for rounding."""
REFERENCE = ""
"""The section of the reference runs."""

Block = Mapping[str, tuple[int, float]]
"""Number of runs in each section, and the sum of their judged values."""
Blocks = Mapping[str, Block]
"""Blocks by worker, comparability key, and all constants but the claim's. The newest last."""
EValuesWithin = Mapping[tuple[str, str], float]
"""E-values by the two sections that are compared; the second may be the REFERENCE."""


def with_run(blocks: Blocks, run: FinishedRun, h: Hypothesis, terms: BeliefTerms) -> Blocks:
    """The blocks after one more run: a reference run of a claim, or a candidate."""
    section = _section_of_run(run, h, terms)
    if run.judged is None or section is None:
        return blocks
    rest = sorted((name, value) for name, value in run.config.items() if name not in about(h))
    name = sha256(json.dumps([run.worker_id, run.key, rest]).encode()).hexdigest()[:16]
    block = dict(blocks.get(name, {}))
    runs, total = block.get(section, (0, 0.0))
    block[section] = runs + 1, total + run.judged
    others = {key: each for key, each in blocks.items() if key != name}
    return dict([*others.items(), (name, block)][-MOST_BLOCKS:])


def e_values_of(blocks: Blocks, h: Hypothesis, terms: BeliefTerms) -> EValuesWithin:
    """The e-values of all differences against their margins; empty until sigma and every section are known."""
    needed = _sections_needed(h, terms)
    if terms.sigma is None or terms.repeats < ENOUGH_REPEATS:
        return {}
    if not all(any(name in block for block in blocks.values()) for name in needed):
        return {}
    sigma = max(terms.sigma, SMALLEST_SIGMA)
    return {
        (one, other): e_value_within(
            mean, sigma**2 * variance, sigma * (1 if other == REFERENCE else BETWEEN)
        )
        for (one, other), (mean, variance) in _differences(blocks, needed).items()
    }


def is_irrelevant(e_values: EValuesWithin, blocks: Blocks) -> bool:
    """Whether the effect of the claim's dimensions is within one sigma of a run over their whole range."""
    needed = {one for one, _ in e_values}
    runs = sum(block[name][0] for block in blocks.values() for name in needed if name in block)
    return runs >= ENOUGH_RUNS and all(e_value >= ENOUGH_E_VALUE for e_value in e_values.values())


def lacking(e_values: EValuesWithin) -> dict[str, float]:
    """Evidence of irrelevance that each section lacks: logarithms of factors of e-values, summed over differences.

    A section that lacks more gets more of the next runs. Such draws depend on past values, and e-values allow that
    (Ramdas et al., Stat. Sci. 38, 2023). In `bench.beliefs` 90 % of the dimensions without an effect then pass within
    64 instead of 84 runs.
    """
    found = dict[str, float]()
    for sections, e_value in e_values.items():
        lacks = max(0.0, math.log(ENOUGH_E_VALUE / max(e_value, LEAST_E_VALUE)))
        found |= {name: found.get(name, 0.0) + lacks for name in sections if name != REFERENCE}
    return {name: round(lacks, 2) for name, lacks in found.items()}


def e_value_within(mean: float, variance: float, size: float) -> float:
    """The e-value of an estimate against true differences of `size` or more, on the side of the estimate.

    It is the likelihood ratio of a smaller difference to `size`, mixed over differences uniform on (0, `size`). It is
    lower against larger differences. `variance` is above 0.
    """
    error, away = math.sqrt(variance), size - abs(mean)
    if away <= 0:
        return 0.0
    mass = _below(away / error) - _below(-abs(mean) / error)
    return math.exp(min(away**2 / (2 * variance), 700.0)) * error * math.sqrt(2 * math.pi) / size * mass


def _below(z: float) -> float:
    """The distribution function of the standard normal."""
    return math.erfc(-z / math.sqrt(2)) / 2


def _differences(blocks: Blocks, needed: Sequence[str]) -> Mapping[tuple[str, str], tuple[float, float]]:
    """Differences of sections from the reference config and from each other, with variances in units of one run's.

    Empty where no worker's runs connect the sections.
    """
    import numpy as np

    names = [*needed, *sorted({name for block in blocks.values() for name in block} - {REFERENCE, *needed})]
    place = {name: n for n, name in enumerate(names)}
    normal, sums = np.zeros((len(names), len(names))), np.zeros(len(names))
    for block in blocks.values():
        runs, totals = np.zeros(len(names)), np.zeros(len(names))
        for name, (n, total) in block.items():
            if name != REFERENCE:
                runs[place[name]], totals[place[name]] = n, total
        all_runs = sum(n for n, _ in block.values())
        normal += np.diag(runs) - np.outer(runs, runs) / all_runs
        sums += totals - runs * (sum(total for _, total in block.values()) / all_runs)
    if np.linalg.matrix_rank(normal) < len(names):
        return {}
    variances = np.linalg.inv(normal)
    means = variances @ sums
    found = {
        (name, REFERENCE): (float(means[n]), float(variances[n, n]))
        for name, n in place.items()
        if name in needed
    }
    for (one, a), (other, b) in combinations(list(place.items())[: len(needed)], 2):
        variance = variances[a, a] + variances[b, b] - 2 * variances[a, b]
        found[one, other] = float(means[a] - means[b]), float(variance)
    return found


def _section_of_run(run: FinishedRun, h: Hypothesis, terms: BeliefTerms) -> str | None:
    """The section of a run; None where the dimensions have been redefined since."""
    if is_reference(run, h):
        return REFERENCE
    found = [
        section_of(run.config[name], sections) if name in run.config else None
        for name, sections in _sections(h, terms).items()
    ]
    names = [name for name in found if name is not None]
    return "|".join(names) if names and len(names) == len(found) else None


def _sections_needed(h: Hypothesis, terms: BeliefTerms) -> list[str]:
    """The sections of the claim's runs, or their combinations for several dimensions.

    Empty where a dimension is gone, or there are too many combinations.
    """
    by_name, reference, found = _sections(h, terms), h.reference_config, list[str]()
    if not by_name:
        return found
    for rooms in product(*(sections.items() for sections in by_name.values())):
        named = zip(by_name, rooms, strict=True)
        if not all(name in reference and is_alone(reference[name], room) for name, (_, room) in named):
            found.append("|".join(section for section, _ in rooms))
    return found


def _sections(h: Hypothesis, terms: BeliefTerms) -> Mapping[str, Sections]:
    """Sections by dimension of the claim; empty where there are too many combinations."""
    by_name = {d.name: d for d in terms.dimensions}
    found = {
        name: sections_of_claim(by_name[name], h.config_constraint.get(name)) if name in by_name else {}
        for name in sorted(about(h))
    }
    return found if math.prod(map(len, found.values())) <= MOST_SECTIONS else {}
