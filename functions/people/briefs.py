"""What a reader has to know now: an agent's brief, the night, the agents of a tag."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from functions.beliefs.rules.theory import least_decided
from functions.beliefs.views import Belief, belief_of
from functions.experiments.rules.gains import ChainStep, chain, gains_of
from functions.experiments.rules.verdict import should_abort
from functions.experiments.views.hints import (
    Budget,
    budget_view,
    is_limited,
    obstacle,
    open_step,
    standstill,
    tag_step,
)
from functions.experiments.views.runs import selection_view, sketch_view
from functions.kernel.contract import OfTag, Request, Response, function
from functions.kernel.off_loop import Children
from functions.people.diffs import own_changes
from functions.people.views import NightView, markdown, night_view
from functions.search.rules.suggestions import short
from functions.trust.rules.guarding import in_words
from functions.trust.rules.noise import near_scores
from state.experiments import Experiments
from state.ids import AgentName, Tag
from state.records import NO_CHANGE, AgentRun, Score, Selection, Sketch, view_of
from state.reports import AgentFacts, BriefFacts, Reports
from state.settings import Settings

OPEN_SHOWN = 10
BELIEFS_SHOWN = 5


class ReadBrief(Request):
    tag: Tag
    agent: AgentName | None = Field(None, description="only what this agent, or no named one, has open")


class Brief(Response):
    tag: str
    branch: str
    metric: str
    direction: str
    score: Score
    """Source of the lab's values: train.py prints them, or a trusted evaluator measures them afterwards."""
    hidden_split: bool
    """A keep must also not be worse on data that nobody sees: see docs/hidden-split.md."""
    base_commit_sha: str | None
    """Commit for the next idea: the best's, else the tag's base."""
    best: dict[str, Any] | None
    total_experiments: int
    kept_experiments: int
    open_experiments: list[dict[str, Any]]
    open_selections: list[dict[str, Any]]
    """Selections without an experiment: go on with them, or release them."""
    last_results: list[dict[str, Any]]
    strategy: dict[str, Any]
    strategy_mode: str
    """`strategy.mode` once more."""
    near_misses: list[dict[str, Any]]
    beliefs: list[Belief]
    """Hypotheses under test, the least decided first. An experiment names the one that it tests as hypothesis_id."""
    paused: bool
    budget: Budget | None
    """None: the tag has no limit."""
    trace_mode: str
    """`single`, or `multi`: then every experiment is made from what trace::select answers."""
    consecutive_crashes: int
    should_abort: bool
    """So many crashes that something is broken for all runs: find the cause before the next run."""
    guards: list[str]
    """What a run must not break to be kept."""
    next: str
    """What to do now, in a sentence."""


@function("report::brief", role="agent")
async def brief(request: ReadBrief, reports: Reports, settings: Settings) -> Brief:
    """Open experiments, what to build on, the last results, strategy and near misses; at most 2,000 tokens."""
    facts = await reports.brief(request.tag, near_scores)
    tag, best, strategy = facts.tag, facts.best, facts.strategy
    mine = [e for e in facts.still_open if request.agent is None or e.agent in (None, request.agent)]
    unused = [s for s in facts.unused if request.agent in (None, s.agent)]
    return view_of(
        Brief,
        tag,
        tag=tag.name,
        branch=short(tag.branch, 100),
        score=tag.score,
        base_commit_sha=best.commit_sha if best else tag.base_commit,
        best={
            "experiment_id": best.experiment_id,
            "val_bpb": best.val_bpb,
            "commit": best.commit_sha,
            "trust": facts.best_trust,
        }
        if best
        else None,
        total_experiments=tag.total,
        kept_experiments=tag.kept,
        open_experiments=[sketch_view(e) for e in mine[:OPEN_SHOWN]],
        open_selections=[selection_view(s) for s in unused[:OPEN_SHOWN]],
        last_results=[sketch_view(e) for e in facts.results],
        strategy={
            "mode": strategy.mode,
            "temperature": strategy.temperature,
            "reason": short(strategy.reason, 200),
        },
        strategy_mode=strategy.mode,
        near_misses=[sketch_view(e) for e in facts.near],
        beliefs=[belief_of(h) for h in least_decided(facts.hypotheses)[:BELIEFS_SHOWN]],
        paused=tag.paused_at is not None,
        budget=budget_view(tag) if is_limited(tag) else None,
        trace_mode=facts.policy.traces.mode,
        consecutive_crashes=facts.crashes_in_a_row,
        should_abort=should_abort(facts.crashes_in_a_row, facts.policy.crash_limit),
        guards=in_words(facts.policy.guards, tag.direction),
        next=_next(facts, mine[0] if mine else None, unused[0] if unused else None, settings.stale_s),
    )


def _next(facts: BriefFacts, mine: Sketch | None, unused: Selection | None, stale_s: float) -> str:
    why_not = obstacle(facts.tag)
    if mine is not None and mine.status != "registered":
        why_not = why_not or standstill(facts.slots, facts.now, stale_s)
        return open_step(mine.experiment_id, mine.status, None, why_not, mine.last_progress)
    if mine is not None:
        step = open_step(mine.experiment_id, mine.status, None)
    elif unused is not None and not should_abort(facts.crashes_in_a_row, facts.policy.crash_limit):
        step = f"Go on with {unused.selection_id}, or give it back: POST /api/trace/release."
    else:
        is_empty = facts.best is None and facts.tag.total == 0
        step = tag_step(facts.tag, facts.policy, facts.crashes_in_a_row, is_empty=is_empty)
    return f"{why_not} {step}" if why_not else step


MOST_CHANGES = 20
"""Keeps whose own change is shown: the last ones."""


class ReadNight(Request):
    tag: Tag
    changes: bool = Field(True, description="show what each keep changed beside the one it was made from")
    picture: str | None = Field(
        None,
        max_length=200,
        pattern=r"^[A-Za-z0-9._/-]+$",
        description="the file of the plot that the Markdown names; without it a chart of the keeps is drawn",
        examples=["progress.png"],
    )


class Night(Response, NightView):
    markdown: str
    """All of it as a report, fit for a pull request."""


@dataclass(frozen=True)
class NightStores:
    reports: Reports
    experiments: Experiments


@function("report::night", role="viewer", costly=True)
async def night(request: ReadNight, stores: NightStores, children: Children) -> Night:
    """The night's progress, its chain of keeps with the change of each, and its failures."""
    facts = await stores.reports.night(request.tag)
    best_id = facts.best.experiment.experiment_id if facts.best else None
    steps = chain(best_id, facts.keeps)
    compared = {step.keep.experiment_id for step in steps} | {facts.tag.baseline_id or ""}
    shown = steps[-MOST_CHANGES:] if request.changes else []
    near, runs, changes = await asyncio.gather(
        stores.reports.nearest(facts, near_scores),
        stores.experiments.runs(sorted(compared)),
        _changes(shown, stores.experiments, children),
    )
    seen = night_view(facts, near, steps, runs, changes)
    return Night(**dict(seen), markdown=markdown(seen, request.picture))


async def _changes(
    steps: list[ChainStep], experiments: Experiments, children: Children
) -> dict[str, str | None]:
    """Each keep's own change, by its id."""
    new = [step for step in steps if not step.keep.baseline]
    keeps = [step.keep for step in steps] + [step.above for step in steps[:1] if step.above]
    names = {keep.diff_id for keep in keeps}
    patches = dict(zip(names, await experiments.patches_named([*names]), strict=True))
    found = await own_changes([(_above(step, patches), patches[step.keep.diff_id]) for step in new], children)
    return {step.keep.experiment_id: change for step, change in zip(new, found, strict=True)}


def _above(step: ChainStep, patches: dict[str | None, bytes | None]) -> bytes | None:
    """The patch of the keep that it changed: empty for the base commit, None if it is not known."""
    return NO_CHANGE if step.above is None or step.above.baseline else patches[step.above.diff_id]


MOST_RUNS = 10_000
MOST_AGENTS = 500


class AgentAccount(Response):
    """What one agent did in a tag."""

    agent: str | None
    """Null: runs that were registered without an agent's name."""
    ideas: int = 0
    """Finished runs, without baselines, retests and claims."""
    keeps: int = 0
    demoted: int = 0
    """Keeps that further runs did not confirm."""
    crashes: int = 0
    """Crashes and timeouts."""
    best_gain: float | None = None
    """Largest gain of its keeps over the best of their time, on the same seeds; null: none can be compared."""
    total_gain: float = 0.0
    """Sum of these gains. A keep of another branch than the best's adds nothing."""
    gpu_hours: float = 0.0
    """Hours that its finished runs trained, without retests."""
    last_seen: float | None = None
    """When its newest run was registered or finished, in seconds since 1970."""
    open_runs: int = 0
    """Runs that are registered, queued or training, without retests."""
    open_claims: int = 0
    """Values that only the agent measured so far, among the newest 1,000 discards."""


class ListedAgents(Response):
    tag: str
    runs: int
    """Finished runs that were counted: the newest 10,000 at most."""
    agents: list[AgentAccount]
    """By their total gain, the largest first; 500 at most. Gains are of the tag's newest 1,000 keeps."""


@function("report::agents", role="viewer")
async def agents(request: OfTag, reports: Reports, experiments: Experiments) -> ListedAgents:
    """Ideas, keeps, crashes, gains and GPU hours of each agent of a tag, from its newest 10,000 runs."""
    facts = await reports.of_agents(request.tag, MOST_RUNS)
    gains = gains_of(facts.keeps, await experiments.beside(facts.keeps), facts.tag.direction)
    by_agent = defaultdict[str | None, list[float]](list)
    for keep in facts.keeps:
        if keep.experiment_id in gains:
            by_agent[keep.agent].append(gains[keep.experiment_id])
    found = [_account(name, runs, by_agent[name]) for name, runs in _by_agent(facts).items()]
    found.sort(key=lambda each: (-each.total_gain, -each.keeps, each.agent or ""))
    return ListedAgents(tag=facts.tag.name, runs=len(facts.finished), agents=found[:MOST_AGENTS])


def _by_agent(facts: AgentFacts) -> dict[str | None, list[AgentRun]]:
    """All runs of each agent, without retests."""
    claims = (run for run in facts.discards if run.is_claim)
    runs = defaultdict[str | None, list[AgentRun]](list)
    for run in (*facts.finished, *claims, *facts.still_open):
        if run.retest_of is None:
            runs[run.agent].append(run)
    return runs


def _account(agent: str | None, runs: Sequence[AgentRun], gains: Sequence[float]) -> AgentAccount:
    ended = [run for run in runs if run.finished_at is not None]
    ideas = [run for run in ended if not run.baseline and not run.is_claim]
    return AgentAccount(
        agent=agent,
        ideas=len(ideas),
        keeps=sum(run.status == "keep" for run in ideas),
        demoted=sum(run.trust == "demoted" for run in ideas),
        crashes=sum(run.status in ("crash", "timeout") for run in ideas),
        best_gain=max(gains, default=None),
        total_gain=sum(gain for gain in gains if gain > 0),
        gpu_hours=sum(run.wall_seconds or run.training_seconds or 0.0 for run in ended) / 3600,
        last_seen=max(run.finished_at or run.registered_at for run in runs),
        open_runs=len(runs) - len(ended),
        open_claims=sum(run.is_claim for run in runs),
    )
