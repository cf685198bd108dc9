"""Measures the test of certificates: false certificates, pairs that it needs, real seeds, and changed folders.

    .venv/bin/python -P -m bench.certify

Each simulated candidate is run beside its reference, and looked at after each pair. At the margin its true gain is
the margin: any certificate is false. Noise of both is normal, Student's t with 3 degrees of freedom, lognormal
(skewed), or normal with one run in ten that is ten times as noisy. Sigma is that of one run. The fixed n is that of a
one-sided paired t-test at the same alpha and the power that the sequential test had. Brackets hold 95 % intervals.

Real seeds: `--seeds FILE` names a JSON list of public records with their seeds, oldest first in each track. Each
record was accepted as better than the one before it. A record has too few seeds for 7 pairs, so pairs are drawn from
its seeds and those of the record before it, with replacement. The same pairs the other way round have to be refused.
This takes the published seeds for all that there are.

Changed folders: the folder of a certificate of a made-up lab, with one byte changed at many places, or a file more or
less. `verify.py` has to refuse each in a process of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bench._changed import unrefused
from bench._report import Bench
from functions.trust.rules.certifying import MOST_PAIRS
from functions.trust.rules.sequential import BETS, HOPELESS, decided

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
ALPHA = 0.01
NOISES: Mapping[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "Student's t, 3 degrees of freedom": lambda rng, shape: rng.standard_t(3, shape),
    "lognormal": lambda rng, shape: np.exp(rng.standard_normal(shape)),
    "one run in ten 10 times as noisy": lambda rng, shape: (
        rng.standard_normal(shape) * np.where(rng.random(shape) < 0.1, 10.0, 1.0)
    ),
    "normal, rounded to whole sigmas": lambda rng, shape: np.round(rng.standard_normal(shape), 0),
}


def decisions(gains: Floats) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Of each row of gains beyond the margin: whether it is certified, and after how many pairs it ends.

    The rule of `decided` on arrays; `tests/test_bench.py` compares the two.
    """
    count = gains.shape[1]
    n = np.arange(1, count + 1)
    scale = np.cumsum(np.abs(gains), axis=1) / n
    size = np.divide(gains, scale, out=np.zeros_like(gains), where=scale > 0)
    logs = [np.cumsum(math.log(2) - np.logaddexp(0.0, -2 * bet * size), axis=1) for bet in BETS]
    e = np.exp(logs).mean(axis=0)
    up = e * ALPHA >= 1
    down = (e <= HOPELESS) | (e * ALPHA * 2.0 ** (count - n) < 1)
    ends = np.where((up | down).any(axis=1), (up | down).argmax(axis=1), count - 1)
    return up[np.arange(len(up)), ends], ends + 1


def drawn(noise: Draw, gain: float, candidates: int, rng: np.random.Generator) -> Floats:
    """Gains beyond the margin of each candidate's pairs."""
    shape = (candidates, MOST_PAIRS)
    return gain + noise(rng, shape) - noise(rng, shape)


def fixed_n(gain: float, power: float) -> int:
    """Pairs that a one-sided paired t-test takes for this power, under normal noise with a sigma of 1."""
    from scipy.stats import nct, t

    n = 2
    while nct.sf(t.ppf(1 - ALPHA, n - 1), n - 1, gain / math.sqrt(2) * math.sqrt(n)) < power:
        n += 1
    return n


def redrawn(records: list[dict[str, Any]], rng: np.random.Generator) -> Iterator[tuple[str, str, float]]:
    """Of each record beside the one before it in its track: the verdict, the verdict the other way round, and the
    e-value of their own seeds."""
    tracks: dict[str, list[list[float]]] = {}
    for record in sorted(records, key=lambda one: one["date"]):
        tracks.setdefault(record["track"], []).append(claimed_seeds(record))
    for old, new in (pair for its in tracks.values() for pair in pairwise(its)):
        gains = rng.choice(old, MOST_PAIRS) - rng.choice(new, MOST_PAIRS)
        own = decided([a - b for a, b in zip(old, new, strict=False)], ALPHA, MOST_PAIRS)[1]
        forth, back = (decided([*map(float, sign * gains)], ALPHA, MOST_PAIRS)[0] for sign in (1, -1))
        yield forth, back, own


def claimed_seeds(record: dict[str, Any]) -> list[float]:
    """Its seeds; every other one where the mean of these alone is the claimed value."""
    seeds, claimed = record["seeds"], record["claimed"]
    if claimed is not None and abs(float(np.mean(seeds)) - claimed) > 1e-4 > abs(
        float(np.mean(seeds[::2])) - claimed
    ):
        return list(seeds[::2])
    return list(seeds)


@click.command()
@click.option("--candidates", default=20_000, show_default=True)
@click.option("--places", default=400, show_default=True, help="changed bytes")
@click.option(
    "--seeds", type=click.Path(exists=True, path_type=Path), help="records with their seeds, as JSON"
)
@click.option("--seed", default=1, show_default=True, help="of the chance")
def main(candidates: int, places: int, seeds: Path | None, seed: int) -> None:
    """Run the bench."""
    from scipy.stats import binomtest

    bench, rng = Bench(), np.random.default_rng(seed)
    table = Table("what", "found", "asked")
    for name, noise in NOISES.items():
        certified, _ = decisions(drawn(noise, 0.0, candidates, rng))
        low, high = binomtest(int(certified.sum()), candidates).proportion_ci(method="wilson")
        found = f"{100 * certified.mean():.2f} % [{100 * low:.2f}, {100 * high:.2f}]"
        bench.row(table, f"false certificates: {name}", found, "<= 1 %", is_hit=certified.mean() <= ALPHA)
    for gain in (2.0, 1.0, 0.0):
        certified, pairs = decisions(drawn(NOISES["normal"], gain, candidates, rng))
        found = f"{np.mean(pairs):.1f} on average, {100 * certified.mean():.1f} % certified"
        if gain == 2:
            n, median = fixed_n(gain, float(certified.mean())), float(np.median(pairs))
            bench.row(
                table,
                "pairs at 2 sigma, median",
                f"{median:g} of {n}, {median / n:.2f}",
                "<= 0.6",
                is_hit=median <= 0.6 * n,
            )
        table.add_row(f"pairs at {gain:g} sigma", found, "")
    if seeds is not None:
        verdicts = [*redrawn(json.loads(seeds.read_text()), rng)]
        agree = sum(verdict[:2] == ("certified", "refused") for verdict in verdicts)
        bench.row(
            table,
            "real records, as published",
            f"{agree} of {len(verdicts)}",
            "all",
            is_hit=agree == len(verdicts),
        )
        most = max(own for *_, own in verdicts)
        table.add_row("largest e-value of their own seeds", f"{most:.2f}: too few pairs for a verdict", "")
    tried, missed = unrefused(places, rng)
    bench.row(
        table,
        "changed folders refused",
        f"{tried - len(missed)} of {tried} {missed[:3] or ''}",
        "all",
        is_hit=not missed,
    )
    bench.console.print(table)
    bench.end(f"{candidates} candidates each, alpha {ALPHA}, at most {MOST_PAIRS} pairs")


if __name__ == "__main__":
    main()
