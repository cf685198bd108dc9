"""Benchmarks: what they show of the rules is still so, on fewer nights and in wider bounds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import fmean

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from bench import certify, distil, earlystop, earlystop_swarm, fdr, hidden, search, transitions
from bench._search import RUN_S, planted, searched
from bench._swarm_night import POLICY
from bench.canaries import TAG, ProposalNight
from bench.keeps import (
    AGAIN,
    ALONE,
    FALSE,
    GAIN,
    KEPT,
    OVER,
    PAIRED,
    KeepingNight,
    Rule,
    simulate,
)
from bench.keeps import lived as keeps_lived
from functions.kernel.process.lifecycle import Process
from functions.trust.rules.sequential import decided
from tests.labs import told


@pytest.mark.parametrize("paired", [0.0, PAIRED])
@pytest.mark.parametrize(
    ("sigma", "most_false", "least_gain", "most_overstated"),
    [(0.0006, 0.21, 0.90, 0.0009), (0.0012, 0.28, 0.95, 0.0020)],
)
def test_a_night_of_confirmed_keeping_gains_what_greedy_keeping_gains_with_half_of_the_false_keeps(
    sigma: float, paired: float, most_false: float, least_gain: float, most_overstated: float
) -> None:
    found = simulate(ALONE, [KeepingNight.drawn(seed, paired, False) for seed in range(40)], sigma)
    greedy, confirmed = found["greedy"], found["default"]
    assert confirmed.rate(FALSE, KEPT)[0] <= min(most_false, 0.6 * greedy.rate(FALSE, KEPT)[0])
    assert confirmed.mean(GAIN)[0] >= least_gain * greedy.mean(GAIN)[0]
    assert confirmed.mean(OVER)[0] <= min(most_overstated, 0.6 * greedy.mean(OVER)[0])
    assert 0.05 <= confirmed.mean(AGAIN)[0] <= 0.15


@pytest.mark.parametrize(("sigma", "least"), [(0.0006, 0.85), (0.0012, 0.8)])
def test_what_holds_gains_almost_what_greedy_keeping_gains_and_is_true(sigma: float, least: float) -> None:
    nights = [fdr.longer(KeepingNight.drawn(seed, PAIRED, False), seed, PAIRED) for seed in range(12)]
    found = [fdr.stated(fdr.Stating(last=16), night, sigma).outcome() for night in nights]
    greedy = [keeps_lived(Rule("strict"), night, sigma)[GAIN] for night in nights]
    assert sum(night[fdr.WORST] for night in found) / len(found) <= 0.1
    assert sum(night[fdr.NEWEST] for night in found) >= least * sum(greedy)


def test_a_hidden_split_refuses_the_best_of_many_changes_without_an_effect_and_keeps_honest_gains() -> None:
    rng, tags = np.random.default_rng(0), 100
    assert hidden.promotions(rng, tags, 12, None, is_hidden=False) >= 0.9 * tags
    assert hidden.promotions(rng, tags, 12, None) <= 0.08 * tags
    assert hidden.promotions(rng, tags, 12, 5) >= 0.95 * tags


# -- early stopping


@pytest.mark.parametrize("name", ["lcbench", "gpt"])
def test_adaptive_stopping_saves_on_both_kinds_of_curves_and_spares_the_best(name: str) -> None:
    found = earlystop.measured(earlystop.pool(name), "adaptive", range(12))
    bound = earlystop.POOLS[name]
    assert bound is not None
    assert found.used <= bound.used + 0.02
    assert found.best >= 0.9
    assert found.top >= bound.top - 0.04


def test_early_stopping_saves_gpu_time_of_a_whole_swarm(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICY.changed({"belief.reference_share": 0.2, "sampler": "thompson"})
    monkeypatch.setattr(earlystop_swarm, "POLICY", policy)

    found = earlystop_swarm.lived(
        earlystop_swarm.NightPlan(1, "lcbench", earlystop_swarm.DEFAULT, results=120)
    )

    assert found.saved > 0.08
    assert found.stopped > 15
    assert found.references <= 0.28


def test_a_search_with_the_defaults_of_a_swarm_beats_random_search() -> None:
    task = planted(1)
    ours, blind = (
        fmean(
            searched(task, method(task, 8, 64, seed), 8, 64 * RUN_S, seed).regret(64 * RUN_S)
            for seed in range(3)
        )
        for method in (search.METHODS["nightjar"], search.METHODS["random"])
    )

    assert ours < 0.5 * blind


def test_transitions_are_compared_on_every_log_of_a_folder(tmp_path: Path) -> None:
    header = "commit\tval_bpb\tstatus\tdescription\n"
    rows = [
        f"{n:07x}\t3\tdiscard\tdepth {n}" if n % 3 else f"{n:07x}\t{2 - 0.01 * n}\tkeep\tdepth {n}"
        for n in range(30)
    ]
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.tsv").write_text(header + "\n".join(rows))
    (tmp_path / "none.tsv").write_text("nothing\n")
    (tmp_path / "signals.tsv").write_text("commit\tpsnr\tstatus\n1a2b3c4\t0.5\tkeep\n")

    done = CliRunner().invoke(transitions.main, [str(tmp_path)])
    empty = CliRunner().invoke(transitions.main, [str(tmp_path / "nothing")])

    assert done.exit_code == 0, done.output
    assert "3 logs, 75 tries after the first five of each" in done.output
    assert "left out: none.tsv: " in done.output
    assert "left out: signals.tsv: nothing says whether a higher psnr is better" in done.output
    assert empty.exit_code == 2


@pytest.mark.parametrize("noise", certify.NOISES)
def test_at_most_one_certificate_in_a_hundred_is_false_and_the_bench_has_the_rule_s_verdicts(
    noise: str,
) -> None:
    gains = certify.drawn(certify.NOISES[noise], 0.0, 2000, np.random.default_rng(3))
    certified, pairs = certify.decisions(gains)
    assert certified.mean() <= 0.015
    for row, was_certified, count in [*zip(gains, certified, pairs, strict=True)][:200]:
        assert (decided([*row], 0.01, 30)[0] == "certified") == was_certified
        assert decided([*row[: count - 1]], 0.01, 30)[0] == "running"


def test_nine_chains_of_ten_are_distilled_in_forty_runs_and_their_branches_apply(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    chains = [distil.planted(3.0, 6.0, rng) for _ in range(60)]

    states = {chain.distilled().state for chain in chains}

    assert states == {"done"}
    assert sum(chain.is_hit() for chain in chains) >= 54
    parts, good = asyncio.run(distil.branches(chains[0], tmp_path))
    assert parts == good > 0


def test_a_gain_of_two_sigma_takes_at_most_six_tenths_of_the_pairs_of_a_fixed_test() -> None:
    gains = certify.drawn(certify.NOISES["normal"], 2.0, 2000, np.random.default_rng(4))
    certified, pairs = certify.decisions(gains)
    assert np.median(pairs) <= 0.6 * certify.fixed_n(2.0, float(certified.mean()))


async def test_a_night_of_proposed_dimensions_follows_the_events_as_a_lab_does(
    process: Process, operator: httpx.AsyncClient
) -> None:
    await ProposalNight(process, 1, "thompson").live(20)

    beliefs = (await told(operator, "/api/hypothesis/list", tag=TAG))["hypotheses"]
    assert {each["status"] for each in beliefs} == {"active"}  # made when the dimensions were defined
