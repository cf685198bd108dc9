"""With which probability a run is stopped at a bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.runs.rules.stopping import (
    REASON,
    STOPPERS,
    SURE,
    UNSURE,
    UNSURE_UNTIL,
    Checkpoint,
    PeerRank,
    TickVerdict,
    adaptive,
    drawn,
    judge,
    looks_at,
    most,
    rungs,
    standing,
    was_spared,
)
from functions.runs.rules.ticks import bucket_of
from state.facts import NO_TREND, Trend
from state.policy import BUCKETS, EARLY, FIFTHS, Stopping, StoppingRule
from tests.functions.sample import experiment

STOCHASTIC = Stopping(rule="stochastic")
EXTENDING = Stopping(rule="stochastic", extend_at=0.8)
CERTAIN = Stopping(rule="stochastic", max_prob=1.0)


def ranked(rank: float) -> PeerRank:
    """A standing of this rank, among a thousand peers."""
    worse = round(10 * rank)
    return PeerRank(1000 - worse, 0, worse)


def at(rank: float, bucket: float = 0.4, **more: object) -> Checkpoint:
    return Checkpoint(bucket, ranked(rank), **{"finished": 25, **more})  # type: ignore[arg-type]


PUBLISHED = {0.0: 0.65, 3.33: 0.585, 8.325: 0.4875, 16.65: 0.325, 24.975: 0.1625, 29.97: 0.065}
PUBLISHED |= {33.2: 0.65 * 0.1 / 33.3, 33.3: 0.0, 33.4: 0.0, 50.0: 0.0, 100.0: 0.0}
"""The published rule's probability of a stop by rank."""


@pytest.mark.parametrize(
    ("rule", "rank", "bucket", "chance"),
    [
        *(("stochastic", rank, 0.4, chance) for rank, chance in PUBLISHED.items()),
        *(("median", 49.9, 0.4, 1.0), ("median", 50.0, 0.4, 0.0), ("asha", 66.6, 0.4, 1.0)),
        *(("asha", 66.7, 0.4, 0.0), ("asha", 0.0, 0.6, 0.0), ("none", 0.0, 0.4, 0.0)),
    ],
)
def test_a_rule_stops_a_rank_with_this_probability(
    rule: StoppingRule, rank: float, bucket: float, chance: float
) -> None:
    standing = PeerRank(round(100_000 - 1000 * rank), 0, round(1000 * rank))
    assert STOPPERS[rule](standing, bucket, STOCHASTIC) == pytest.approx(chance, abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "checkpoint", "draw", "told"),
    [
        *((STOCHASTIC, at(16.7), draw, "stop") for draw in (0.0, 0.32)),
        *((STOCHASTIC, at(16.7), draw, "continue") for draw in (0.33, 0.999)),
        *((Stopping(extend_at=0.8), at(rank, 0.8), 0.0, "continue") for rank in (0.0, 50.0, 100.0)),
        *((STOCHASTIC, at(100.0, bucket), 0.0, "continue") for bucket in BUCKETS),
        (Stopping(rule="stochastic", extend_at=1.0), at(100.0, 1.0), 0.0, "extend"),
        *((EXTENDING, at(rank, 0.8), 0.0, "extend") for rank in (89.0, 100.0)),
        *((EXTENDING, at(*place), 0.0, "continue") for place in ((88.9, 0.8), (100.0, 0.6), (100.0, 1.0))),
        (EXTENDING, at(100.0, 0.8, may_extend=False), 0.0, "continue"),
        (EXTENDING, at(100.0, 0.8, finished=24), 0.0, "continue"),
        (EXTENDING, at(100.0, 0.8, may_stop=False), 0.0, "extend"),
    ],
)
def test_a_run_is_stopped_below_its_probability_and_the_best_eleven_percent_are_extended_at_their_bucket(
    settings: Stopping, checkpoint: Checkpoint, draw: float, told: str
) -> None:
    assert judge(checkpoint, draw, settings).told == told


NEEDED = {
    "24 finished runs": Checkpoint(0.4, PeerRank(1000, 0, 0), finished=24),
    "4 peers": Checkpoint(0.4, PeerRank(4, 0, 0), finished=1000),
    "at the end": Checkpoint(1.0, PeerRank(1000, 0, 0), finished=1000),
    "needed whole": Checkpoint(0.4, PeerRank(1000, 0, 0), finished=1000, may_stop=False),
    **{name: at(0.0, strategy=name) for name in ("falsify", "validate", "decision_sprint")},
}


@pytest.mark.parametrize("rule", ["stochastic", "median", "asha"])
@pytest.mark.parametrize("checkpoint", NEEDED.values(), ids=NEEDED)
def test_no_rule_stops_the_worst_run_early_at_its_end_or_if_needed(rule: str, checkpoint: Checkpoint) -> None:
    settings = Stopping.model_validate({"rule": rule, "extend_at": 0.2, "max_prob": 1})
    assert judge(checkpoint, 0.0, settings) == TickVerdict("continue", 0.0)


@pytest.mark.parametrize(
    ("eta", "expected"), [(3, {0.2, 0.4}), (2, {0.2, 0.4}), (1.5, {0.2, 0.4, 0.6}), (10, {0.2})]
)
def test_asha_cuts_at_the_buckets_nearest_to_its_rungs(eta: float, expected: set[float]) -> None:
    assert rungs(eta) == expected


@pytest.mark.parametrize("rule", STOPPERS)
@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_saturated_metric_stops_nobody(rule: str, bucket: float) -> None:
    settings = Stopping.model_validate({"rule": rule, "max_prob": 1})
    alike = Checkpoint(bucket, standing("minimize", lower=0, equal=26, peers=26), finished=26)
    assert alike.standing.rank == 50
    assert judge(alike, 0.0, settings).told == "continue"


COUNTS = st.integers(0, 10_000)


@given(lower=COUNTS, equal=COUNTS, higher=COUNTS)
def test_a_metric_that_is_maximised_ranks_the_other_way_round(lower: int, equal: int, higher: int) -> None:
    peers = lower + equal + higher
    down = standing("minimize", lower=lower, equal=equal, peers=peers)
    up = standing("maximize", lower=lower, equal=equal, peers=peers)
    assert down.peers == up.peers == peers
    assert down.rank + up.rank == pytest.approx(100)
    assert (down.better, down.worse) == (up.worse, up.better)


def test_draws_are_spread_evenly_over_runs_and_buckets() -> None:
    draws = [drawn(f"mar11-{n}", bucket) for n in range(2000) for bucket in BUCKETS]
    assert len(set(draws)) == len(draws)
    assert [sum(i / 10 <= d < (i + 1) / 10 for d in draws) for i in range(10)] == pytest.approx(
        [len(draws) / 10] * 10, rel=0.1
    )


@pytest.mark.parametrize(
    ("progress", "bucket"),
    [
        *((0.0, None), (0.149, None), (0.15, 0.2), (0.2, 0.2), (0.25, 0.2), (0.251, None), (0.35, 0.4)),
        *((0.65, 0.6), (0.85, 0.8), (0.95, 1.0), (1.05, 1.0), (1.06, None), (1.5, None)),
    ],
)
def test_a_tick_counts_for_the_bucket_within_five_hundredths(progress: float, bucket: float | None) -> None:
    assert bucket_of(progress) == bucket


def test_the_reason_holds_no_number_that_a_client_could_take_for_a_result() -> None:
    assert REASON
    assert not any(letter.isdigit() for letter in REASON)


# -- the rule that stops more, the better early ranks have predicted final ranks


ADAPTIVE = Stopping(rule="adaptive")
RUNS = 190
"""As many as early stopping was tried with on one kind of curves: 5 % of them are about ten."""


def trend_of(r: float, runs: int = 200) -> Trend:
    """The sums of runs whose places at a bucket and at the end have this correlation."""
    return Trend(runs, 0.0, 0.0, runs, runs, r * runs)


def placed(place: float, trend: Trend, **more: object) -> PeerRank:
    worse = round(RUNS * place)
    return PeerRank(RUNS - worse, 0, worse, trend=trend, **more)  # type: ignore[arg-type]


def cut(r: float, bucket: float) -> float:
    """The share of the runs, the worst ones, that are stopped for sure."""
    return max(
        (n / 100 for n in range(100) if adaptive(placed(n / 100, trend_of(r)), bucket, ADAPTIVE) == SURE),
        default=0,
    )


def test_the_higher_the_correlation_the_more_are_stopped() -> None:
    cuts = [cut(r, 0.4) for r in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)]
    assert cuts == sorted(cuts)
    assert cuts[0] == 0
    assert 0.2 < cuts[3] < 0.7
    assert cuts[-1] == pytest.approx(most(0.4), abs=0.01)


@pytest.mark.parametrize("bucket", [0.2, 0.4])
def test_the_more_runs_there_are_the_fewer_of_their_best_are_spared(bucket: float) -> None:
    def cut_among(runs: int) -> float:
        chances = [
            adaptive(PeerRank(runs - n, 0, n, trend=trend_of(0.97)), bucket, ADAPTIVE) for n in range(runs)
        ]
        return chances.count(SURE) / runs

    few, usual, many = cut_among(100), cut_among(199), cut_among(2000)

    assert few == pytest.approx(usual, abs=0.02)
    assert usual == pytest.approx(most(bucket), abs=0.02)
    assert usual < many < 0.99


@pytest.mark.parametrize("bucket", BUCKETS)
def test_where_places_foretell_little_only_some_of_the_worst_third_are_stopped_early(bucket: float) -> None:
    chances = {n: adaptive(placed(n / 100, trend_of(0.1)), bucket, ADAPTIVE) for n in range(1, 100)}
    expected = UNSURE if bucket <= UNSURE_UNTIL else 0.0
    assert {chance for n, chance in chances.items() if n < 33} == {expected}
    assert {chance for n, chance in chances.items() if n > 33} == {0.0}


@pytest.mark.parametrize("trend", [NO_TREND, trend_of(0.9, runs=14), trend_of(-0.5)])
def test_nothing_is_stopped_where_too_few_have_ended_or_early_leaders_end_last(trend: Trend) -> None:
    assert adaptive(placed(0.0, trend), 0.1, ADAPTIVE) == 0.0


def test_a_run_that_was_spared_goes_on_to_its_end() -> None:
    assert adaptive(placed(0.0, trend_of(0.9)), 0.2, ADAPTIVE) == SURE
    assert adaptive(placed(0.0, trend_of(0.9), was_spared=True), 0.2, ADAPTIVE) == 0.0


def test_a_run_was_spared_that_might_have_been_stopped_at_an_earlier_bucket() -> None:
    e = experiment(ranked={"0.1": (5.0, 0.75), "0.2": (50.0, 0.0)})
    assert [was_spared(e, bucket) for bucket in (0.1, 0.2, 0.4)] == [False, True, True]
    assert not was_spared(experiment(ranked={"0.1": (50.0, 0.0)}), 0.2)
    assert not was_spared(experiment(), 0.2)


def test_runs_that_were_stopped_before_count_as_worse() -> None:
    half = PeerRank(50, 0, 50, trend=trend_of(0.9))
    best_of_those_left = PeerRank(50, 0, 50, stopped=400, trend=trend_of(0.9))
    assert adaptive(half, 0.4, ADAPTIVE) == SURE
    assert adaptive(best_of_those_left, 0.4, ADAPTIVE) == 0.0


@given(
    r=st.floats(-0.999, 0.999),
    runs=st.integers(0, 10_000),
    bucket=st.sampled_from(FIFTHS),
    places=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_better_place_is_never_likelier_to_be_stopped(
    r: float, runs: int, bucket: float, places: tuple[float, float]
) -> None:
    worse, better = (adaptive(placed(place, trend_of(r, runs)), bucket, ADAPTIVE) for place in sorted(places))
    assert 0 <= better <= worse < 1


def test_only_this_rule_looks_at_runs_before_their_first_fifth() -> None:
    assert [rule for rule in STOPPERS if looks_at(rule, EARLY)] == ["adaptive"]
    assert {rule for rule in STOPPERS if not looks_at(rule, 0.2)} == {"none"}
