"""Benchmarks that need no lab: what they show of the rules is still so, on fewer nights and in wider bounds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from random import Random
from statistics import fmean

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from bench import beliefs_swarm, canaries, earlystop, earlystop_swarm, search, transitions
from bench._peers import Crashes, Registered, registered
from bench._planted import IRRELEVANT
from bench._search import RUN_S, AtRandom, Nightjar, from_folder, planted, searched
from bench._swarm_night import POLICY
from bench._users import LoopHolds, came_too_late
from bench.chaos import StreamEvent, kept_logs, taken_out
from bench.keeps import AGAIN, ALONE, FALSE, GAIN, KEPT, OVER, PAIRED, KeepingNight, RuleFigures, simulate
from functions.experiments.rules.opening import swarm_policy
from functions.swarm.rules.gaussian_search import GaussianProcess
from functions.swarm.rules.sampling import sampler_of
from functions.swarm.rules.shapes import CANARY_SHARE, Shape, drawn_config
from state.policy import Policy, StoppingRule

NIGHTS = 40


def lived(sigma: float, paired: float, *, identical: bool = False) -> tuple[RuleFigures, RuleFigures]:
    """The same nights under the greedy rule and under the default one."""
    nights = [KeepingNight.drawn(seed, paired, identical) for seed in range(NIGHTS)]
    found = simulate(ALONE, nights, sigma)
    return found["greedy"], found["default"]


@pytest.mark.parametrize("paired", [0.0, PAIRED])
@pytest.mark.parametrize(
    ("sigma", "most_false", "least_gain", "most_overstated"),
    [(0.0006, 0.21, 0.90, 0.0009), (0.0012, 0.28, 0.95, 0.0020)],
)
def test_a_night_of_confirmed_keeping_gains_what_greedy_keeping_gains_with_half_of_the_false_keeps(
    sigma: float, paired: float, most_false: float, least_gain: float, most_overstated: float
) -> None:
    greedy, confirmed = lived(sigma, paired)

    assert confirmed.rate(FALSE, KEPT)[0] <= min(most_false, 0.6 * greedy.rate(FALSE, KEPT)[0])
    assert confirmed.mean(GAIN)[0] >= least_gain * greedy.mean(GAIN)[0]
    assert confirmed.mean(OVER)[0] <= min(most_overstated, 0.6 * greedy.mean(OVER)[0])
    assert 0.05 <= confirmed.mean(AGAIN)[0] <= 0.15


@pytest.mark.parametrize("paired", [0.0, PAIRED])
def test_confirmed_keeping_keeps_half_as_often_what_is_the_same_code(paired: float) -> None:
    greedy, confirmed = lived(0.0006, paired, identical=True)

    assert greedy.mean(FALSE)[0] == greedy.mean(KEPT)[0] > 4
    assert confirmed.mean(FALSE)[0] <= 0.5 * greedy.mean(FALSE)[0]


@pytest.mark.long
@pytest.mark.parametrize(("seed", "results"), [(1, 300), (2, 300)])
def test_a_part_of_a_night_of_a_swarm_with_beliefs_is_as_its_rules_say(seed: int, results: int) -> None:
    found = beliefs_swarm.lived(seed, results)

    assert not any(found.off_after_a_round)
    assert 0 <= sum(found.off_when_overtaken) <= 6 * len(found.off_when_overtaken)
    assert found.off_after_a_round or found.off_when_overtaken
    assert found.few >= 0.8
    assert 0.1 <= found.references <= 0.5
    assert found.verdicts[IRRELEVANT] != "supported"
    assert not {"refuted", "irrelevant"} & {v for name, v in found.verdicts.items() if name != IRRELEVANT}
    assert (found.interaction.outcome, found.additive.outcome) == ("win", "loss")


@pytest.mark.long
def test_a_swarm_tries_what_is_proposed_in_its_share_of_the_runs() -> None:
    found = canaries.lived(1, 320, "thompson")

    low, high = canaries.interval(found.tried, found.runs, 0.999999) if found.runs else (0.0, 1.0)
    assert low <= CANARY_SHARE <= high
    assert found.rejected >= len(canaries.PROPOSED)  # those of the start, when no search stalls
    assert found.wanted >= 1
    assert found.proposals.keys() == {each.name for each in canaries.PROPOSED}


def ended(tag: str, status: str) -> StreamEvent:
    return StreamEvent("1-1", "experiment.finished", f"{tag}-1", {"gpu_id": "host:cpu0", "status": status})


OUT = StreamEvent("1-2", "gpu.unhealthy", "host:cpu0", {"reason": "3 runs in a row have crashed on it"})


@pytest.mark.parametrize(
    ("before", "is_found"),
    [
        ([ended("hostile", "crash"), ended("hostile", "timeout")], True),
        ([ended("hostile", "crash"), ended("chaos", "crash")], False),
        ([ended("chaos", "crash"), ended("chaos", "keep"), ended("hostile", "crash")], True),
        ([ended("chaos", "crash"), OUT, ended("hostile", "crash")], True),
    ],
)
def test_chaos_finds_a_gpu_that_hostile_runs_alone_have_taken_out(
    before: list[StreamEvent], is_found: bool
) -> None:
    assert bool([*taken_out([*before, OUT])]) == is_found


def test_chaos_keeps_whole_logs_when_the_folder_of_its_lab_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in ("data", "far"):
        (tmp_path / "lab" / data / "logs").mkdir(parents=True)
        (tmp_path / "lab" / data / "logs" / "web.log").write_text(f"a traceback of {data}\n" + "x" * 100_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    kept = kept_logs(tmp_path / "lab", seed=7)
    shutil.rmtree(tmp_path / "lab")

    assert (kept / "data" / "web.log").read_text() == "a traceback of data\n" + "x" * 100_000
    assert (kept / "far" / "web.log").read_text().startswith("a traceback of far\n")


HELD = """# TYPE nightjar_event_loop_held_seconds histogram
nightjar_event_loop_held_seconds_bucket{process="web",le="0.1"} 0.0
nightjar_event_loop_held_seconds_bucket{process="web",le="0.25"} 2.0
nightjar_event_loop_held_seconds_bucket{process="web",le="+Inf"} 3.0
"""


def test_chaos_adds_up_how_often_each_web_process_was_held() -> None:
    held = LoopHolds()

    for said in (HELD, HELD.splitlines()[0] + "\n", HELD):
        held.add(said)

    assert (held.a_while, held.too_long) == (6.0, 2.0)


@pytest.mark.parametrize(
    ("code", "lease_ends", "is_late"),
    [
        ("selection_expired", "2026-01-01T00:00:00Z", True),
        ("selection_expired", "2999-01-01T00:00:00Z", False),
        ("selection_used", "2026-01-01T00:00:00Z", False),
    ],
)
def test_chaos_excuses_only_a_submit_after_the_end_of_its_lease(
    code: str, lease_ends: str, is_late: bool
) -> None:
    refused = httpx.Response(409, json={"code": code})
    assert came_too_late(refused, {"lease_expires_at": lease_ends}) is is_late


# -- early stopping


@pytest.mark.parametrize("name", ["lcbench", "gpt"])
def test_adaptive_stopping_saves_on_both_kinds_of_curves_and_spares_the_best(name: str) -> None:
    found = earlystop.measured(earlystop.pool(name), "adaptive", range(12))
    bound = earlystop.POOLS[name]

    assert bound is not None
    assert found.used <= bound.used + 0.02
    assert found.best >= 0.9
    assert found.top >= bound.top - 0.04


def test_rules_that_do_not_adapt_end_many_of_the_best_of_nearly_equal_runs_or_save_little() -> None:
    curves = earlystop.pool("gpt")
    rules: list[StoppingRule] = ["none", "stochastic", "median", "asha"]
    none, stochastic, median, asha = [earlystop.measured(curves, rule, range(4)) for rule in rules]

    assert none == earlystop.ReplayOutcome(1.0, 1.0, 1.0)
    assert 0.8 < stochastic.used < 0.9
    assert max(median.top, asha.top) < 0.7


def test_early_stopping_saves_gpu_time_of_a_whole_swarm_whose_reference_runs_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = POLICY.changed({"belief.reference_share": 0.2, "sampler": "thompson"})
    monkeypatch.setattr(earlystop_swarm, "POLICY", policy)
    rules: list[StoppingRule] = ["none", earlystop_swarm.DEFAULT]
    whole, stopped = [
        earlystop_swarm.lived(earlystop_swarm.NightPlan(1, "lcbench", rule, results=250)) for rule in rules
    ]

    assert (whole.saved, whole.stopped) == (0.0, 0)
    assert stopped.saved > 0.08
    assert stopped.stopped > 30
    assert max(whole.references, stopped.references) <= 0.28


def test_a_replay_is_the_same_however_often_it_is_made() -> None:
    curves = earlystop.pool("digits")

    first, again = (earlystop.measured(curves, "adaptive", [3], runs=60) for _ in range(2))

    assert first == again


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


def test_the_answer_of_a_swarm_is_its_best_by_the_keep_rule_and_retests_are_runs() -> None:
    task = search.task_of("digits", None)
    ours = search.METHODS["nightjar"](task, 8, 32, 1)

    found = searched(task, ours, 8, 32 * RUN_S, 1)

    assert isinstance(ours, Nightjar)
    assert ours.best is not None
    assert found.regret(32 * RUN_S) == min(1.0, task.regret(ours.best))
    assert ours.retests
    assert found.started == len(ours.seen) + len(ours.retests)


def test_what_is_measured_are_the_defaults_of_the_server() -> None:
    ours = search.METHODS["nightjar"](planted(1), 8, 64, 1)

    assert isinstance(ours, Nightjar)
    assert ours.policy == swarm_policy(Policy())
    assert isinstance(sampler_of(ours.policy.sampler, Shape("investigate")), GaussianProcess)


@pytest.mark.parametrize("name", ["digits", "mnist", "nanochat", "planted-2"])
def test_a_task_knows_its_best_config_and_what_is_usual(name: str) -> None:
    task = search.task_of(name, None)
    rng = Random(1)
    configs = [drawn_config(task.dimensions, Shape("investigate"), rng) for _ in range(300)]

    regrets = [task.regret(config) for config in configs]

    assert min(regrets) >= 0
    assert 0.4 < fmean(regret > 1 for regret in regrets) < 0.6
    assert len(task.curve(configs[0], rng)) == task.points


def test_gpu_time_is_what_all_workers_use_together_and_crashes_cost_less() -> None:
    task = planted(1)

    def started(crashes: float) -> int:
        return searched(task, AtRandom(task, 8, 64, 1), 8, 64 * RUN_S, 1, crashes).started

    assert 64 <= started(0.0) <= 64 + 8
    assert started(0.5) > 90


def test_an_interval_holds_its_figure_and_a_missed_bound_is_told() -> None:
    rng = np.random.default_rng(1)
    regrets = {
        "nightjar": rng.random((2, 20)),
        "greedy": rng.random((2, 20)),
        "random": rng.random((2, 20)) / 5,
    }
    at = search.CONDITIONS[0]

    found = search.figure(search.ratio_to("greedy"), regrets)

    assert found.low < found.found < found.high
    assert [each.partition(" ")[0] for each in search.misses(at, ["a", "b"], regrets)] == [
        f"{search.figure(search.ratio_to('random'), regrets).found:.3f}",
        "mean",
        "a:",
        "b:",
    ]


def test_what_is_compared_early_with_others_is_compared_with_random_search_at_its_end() -> None:
    early, end, others = (np.full((1, 4), value) for value in (0.3, 0.1, 0.2))
    at = next(condition for condition in search.CONDITIONS if condition.early < 1)

    missed = search.misses(
        at, ["a"], {"nightjar": end, "greedy": others, "random": others, search.EARLY: early}
    )

    assert missed == ["1.500 [1.500, 1.500] times the regret of greedy, and not 1 at most"]


def test_a_library_that_knows_no_crashes_is_told_of_one_as_of_the_worst_value() -> None:
    told = list[tuple[str, float]]()
    crashes = Crashes(lambda asked, value: told.append((asked, value)))

    for asked, value in (("a", None), ("b", 0.9), ("c", 1.1), ("d", 1.0), ("e", None)):
        crashes.ended(asked, value)

    assert told == [("b", 0.9), ("a", 0.9), ("c", 1.1), ("d", 1.0), ("e", 1.1)]


def test_methods_that_are_equally_good_share_their_places() -> None:
    regrets = {
        "nightjar": np.array([[0.0, 0.1]]),
        "greedy": np.array([[0.0, 0.2]]),
        "TPE": np.array([[0.3, 0.3]]),
    }

    assert [search.rank_of(name)(regrets) for name in regrets] == [1.25, 1.75, 3.0]


TASKS = """
import numpy as np
from types import SimpleNamespace as Is
def make(name):
    space = [Is(name="x", kind="float", lo=0.0, hi=1.0, log=False)]
    run = lambda config, seed: (np.full(4, config["x"]), None)
    return Is(name=name, space=space, K=4, run=run, truth=lambda config: config["x"], best=0.0, med=0.5)
"""
METHODS = """
class Halves:
    def __init__(self, space, points, workers, runs, seed):
        assert [p.name for p in space] == ["x"] and (points, workers, runs, seed) == (4, 8, 16, 1)
        self.next, self.told = 1.0, []
    def ask(self, run, now):
        self.next /= 2
        return {"x": self.next}
    def report(self, run, point, value, now):
        return run == 0 and point == 2
    def tell(self, run, value, point, became, now):
        self.told.append((run, point, became))
REG = {"halves": Halves}
"""


def test_methods_of_a_folder_search_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("tasks", TASKS), ("methods", METHODS)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    [task] = from_folder(tmp_path, ["line"])
    halves = registered(tmp_path)["folder:halves"](task, 8, 16, 1)
    assert isinstance(halves, Registered)

    search = searched(task, halves, 8, 16 * RUN_S, 1, crashes=0.2)

    became = {run: (point, how) for run, point, how in halves.method.told}
    assert became[0] == (2, "stopped")
    assert {*became.values()} == {(2, "stopped"), (4, "completed"), (0, "crashed")}
    assert search.regret(16 * RUN_S) < 2**-8


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
