"""Checks a lab: every counter, index, lease and event against the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from functions.fold import ClassNoise
from functions.swarm.rules.dimensions import violations as dimension_violations
from functions.trust.rules.noise import parsed
from state.derived import SET_ASIDE, Books, Derived, leads, milliseconds
from state.records import OPEN, Best, Dimension, Experiment, Gpu, GpuStatus, Tag, score


@dataclass(frozen=True)
class TagSnapshot:
    tag: Tag
    experiments: Sequence[Experiment]
    """By number."""
    rebuilt: Derived
    """Derived state by the experiments and their retests."""
    stored: Derived
    measured: Mapping[str, ClassNoise]
    """Noise by the experiments and their retests, by key."""
    noise: Mapping[str, Mapping[str, str]]
    """The same as it is stored."""
    best: Best | None
    retests: Sequence[Experiment] = ()
    finished_events: Mapping[str, int] | None = None
    """How often each experiment finishes in the stream; None if the stream was trimmed."""
    lost_patches: Mapping[str, str] = field(default_factory=dict)
    """Digests of patches that neither Redis nor the archive has, by their experiments."""
    books: Books = field(default_factory=Books)
    """The sums that the experiments have spent and reserved."""
    ranks: Mapping[float, frozenset[str]] = field(default_factory=dict)
    """By bucket, the runs that others are ranked among."""
    ends: frozenset[str] = frozenset()
    """The runs among whose ends others have their places."""
    told: Mapping[float, float] = field(default_factory=dict)
    """By bucket, how many runs tell by their ends what a place there foretells."""
    dimensions: Sequence[Dimension] = ()


@dataclass(frozen=True)
class PoolSnapshot:
    gpus: Sequence[Gpu]
    owned: Mapping[tuple[str, bool], int]
    """How many GPUs each owner has registered, as the lab counts them; True: as an agent, for itself."""
    idle: frozenset[str]
    leases: frozenset[str]
    queue: frozenset[str]
    starting: frozenset[str]
    open: frozenset[str] = frozenset()
    """The index of registered experiments."""
    parked: frozenset[str] = frozenset()
    """Queued experiments of paused tags."""
    paused: frozenset[str] = frozenset()
    paused_tags: frozenset[str] = frozenset()
    """Tags whose records say that they are paused."""
    baselines: Mapping[str, str] = field(default_factory=dict)
    """The baselines that other experiments wait for, by tag."""
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    """Every experiment that is open, or that a GPU names."""


def tag_violations(s: TagSnapshot) -> Iterator[str]:
    records = {e.experiment_id: e for e in s.experiments}
    yield from _derived(s)
    yield from _noise(s)
    yield from _best(s, records)
    yield from _lineage(s, records)
    yield from _events(s)
    yield from _budget(s)
    yield from _retests(s, records)
    yield from _chain(s, records)
    yield from _ranks(s, records)
    for problem in dimension_violations(s.dimensions):
        yield f"{s.tag.name}: {problem}"
    for experiment_id, digest in sorted(s.lost_patches.items()):
        yield f"{s.tag.name}: the patch {digest} of {experiment_id} is neither in Redis nor in the archive"


def _derived(s: TagSnapshot) -> Iterator[str]:
    name, said, have = s.tag.name, s.stored, s.rebuilt
    for key, counter in sorted(said.counts.keys() | have.counts.keys()):
        n, m = said.counts[key, counter], have.counts[key, counter]
        if n != m and not key.startswith("trace:"):  # of these the audit of the forest tells
            what = f"{name}: the counter" if key == f"tags:{name}" else f"{key}:"
            yield f"{what} {counter} says {n}, the records {m}"
    for key, stray in sorted(said.scores.keys() | have.scores.keys()):
        if said.scores.get((key, stray)) != have.scores.get((key, stray)):
            yield f"{name}: the index {key} and the record of {stray} disagree"
    if max(said.members(f"finished:{name}").values(), default=0) > s.tag.finishes:
        yield f"{name}: finish numbers end with {s.tag.finishes}, the finish order goes on"


def _noise(s: TagSnapshot) -> Iterator[str]:
    """The noise has every run of each code. Which of them are outliers was decided by the noise of that time."""
    for key, measured in s.measured.items():
        stored = dict(s.noise[key])
        df, _ = int(stored.pop("df", 0)), stored.pop("squares", None)
        kept = {name: found for name, text in stored.items() if (found := parsed(text))}
        for name in sorted(kept.keys() | measured.runs.keys()):
            said, have = (
                r.runs + r.is_contradicted if r else 0 for r in (kept.get(name), measured.runs.get(name))
            )
            if said != have:
                yield f"{s.tag.name}: {key} has {said} runs of {name}, the records {have}"
        if df != (have := sum(runs.df for runs in kept.values())):
            yield f"{s.tag.name}: {key} has {df} degrees of freedom, its runs {have}"


def _best(s: TagSnapshot, records: Mapping[str, Experiment]) -> Iterator[str]:
    keeps = s.rebuilt.members(f"keeps:{s.tag.name}")
    lowest = min(keeps.values(), default=None)
    if s.best is None:
        if keeps:
            yield f"{s.tag.name}: there are keeps, but no best"
        return
    if lowest is None or score(s.best.val_bpb, s.tag.direction) != lowest:
        yield f"{s.tag.name}: best is {s.best.val_bpb!r}, the best keep's score {lowest!r}"
    named = records.get(s.best.experiment_id)
    if named is None or named.status != "keep" or named.judged != s.best.val_bpb:
        yield f"{s.tag.name}: best names {s.best.experiment_id}, which is not a keep with that value"


def _lineage(s: TagSnapshot, records: Mapping[str, Experiment]) -> Iterator[str]:
    for e in s.experiments:
        for parent in e.parent_ids:
            if parent not in records:
                yield f"{e.experiment_id}: its parent {parent} is not in the tag"
            elif records[parent].number >= e.number:
                yield f"{e.experiment_id}: its parent {parent} is younger"
        if e.number > s.tag.last_number:
            yield f"{e.experiment_id}: its number is over the tag's last, {s.tag.last_number}"


def _events(s: TagSnapshot) -> Iterator[str]:
    if s.finished_events is None:
        return
    for e in s.experiments:
        said = s.finished_events.get(e.experiment_id, 0)
        # a late report finishes a lost experiment a second time
        allowed = {0} if e.status in OPEN else {1, 2} if e.finished_at is not None else {0}
        if said not in allowed:
            yield f"{e.experiment_id} is {e.status}, the stream has {said} finishes"


def _budget(s: TagSnapshot) -> Iterator[str]:
    said = {
        "reserved_gpu_seconds": milliseconds(s.tag.reserved_gpu_seconds),
        "reserved_runs": s.tag.reserved_runs,
        "spent_gpu_seconds": milliseconds(s.tag.spent_gpu_seconds),
        "spent_runs": s.tag.spent_runs,
    }
    have = dict(
        zip(
            said,
            (s.books.reserved_ms, s.books.reserved_runs, s.books.spent_ms, s.books.spent_runs),
            strict=True,
        )
    )
    for name in said:
        if said[name] != have[name]:
            unit = " ms" if name.endswith("seconds") else ""
            yield f"{s.tag.name}: {name} says {said[name]}{unit}, the experiments {have[name]}{unit}"
    for e in (*s.experiments, *s.retests):
        held = e.reserved_gpu_seconds
        due = milliseconds(e.budget_s or 0.0)
        may_have_more = e.status == "running"  # it has outlasted its budget
        if e.status in SET_ASIDE and (
            held is None or milliseconds(held) < due or (milliseconds(held) > due and not may_have_more)
        ):
            yield f"{e.experiment_id} is {e.status} for {e.budget_s} s, {held} s are set aside for it"
        if e.status not in OPEN and held is not None:
            yield f"{e.experiment_id} is {e.status}, {held} s are still set aside for it"


def _retests(s: TagSnapshot, records: Mapping[str, Experiment]) -> Iterator[str]:
    have = Counter(r.retest_of for r in s.retests)
    for e in records.values():
        if have[e.experiment_id] != e.retests:
            yield f"{e.experiment_id}: its record counts {e.retests} retests, there are {have[e.experiment_id]}"
    for r in s.retests:
        first = records.get(r.retest_of or "")
        if first is None or first.commit_sha != r.commit_sha or not _same_patch(r, first):
            yield f"{r.experiment_id} runs other code than {r.retest_of}"
        if r.status in ("keep", "discard"):
            yield f"{r.experiment_id} is a retest, but {r.status}"


def _same_patch(r: Experiment, first: Experiment) -> bool:
    """Whether a retest has its experiment's patch: as sent, or as found by a worker."""
    # perhaps after the retest was begun; of a claim only its retests know it before one of them has measured it
    return first.is_claim or r.diff_id in (None, first.diff_id, first.sent_diff_id)


def _chain(s: TagSnapshot, records: Mapping[str, Experiment]) -> Iterator[str]:
    """The best is the last link of its chain, and each link is better than the one before."""
    if s.best is None:
        return
    name, chain, rivals = s.tag.name, s.best.chain, s.best.rivals
    best = records.get(s.best.experiment_id)
    waiting = {link.experiment_id for link in chain}
    for e in records.values():
        stray = e.trust == "provisional" and e.best_key is None and e.experiment_id not in waiting
        if stray and best is not None and best.judged_by != "strict":
            yield f"{e.experiment_id} is provisional, but in no chain"
    if not chain:
        return
    if chain[-1].experiment_id != s.best.experiment_id:
        yield f"{name}: the best is {s.best.experiment_id}, its chain ends with {chain[-1].experiment_id}"
    for link in (*chain, *rivals):
        found = records.get(link.experiment_id)
        if found is None or (found.judged, found.commit_sha) != (link.val_bpb, link.commit_sha):
            yield f"{name}: {link.experiment_id} in the best's chain or rivals differs from its record"
        elif leads(found) != (link in chain):
            yield f"{name}: {link.experiment_id} is {found.status}, the chain of the best says otherwise"
    scores = [score(link.val_bpb, s.tag.direction) for link in chain]
    if any(later >= earlier for earlier, later in pairwise(scores)):
        yield f"{name}: the chain of the best gets worse"
    if any(score(rival.val_bpb, s.tag.direction) >= scores[0] for rival in rivals):
        yield f"{name}: a rival is not better than the first link"


def _ranks(s: TagSnapshot, records: Mapping[str, Experiment]) -> Iterator[str]:
    """Who is ranked at a bucket was told something there, and its result was not taken back."""
    for bucket, ranked in s.ranks.items():
        was_told = {
            e.experiment_id
            for e in records.values()
            if e.status != "retracted" and any(here.endswith(f":{bucket!r}") for here in e.told or ())
        }
        for stray in sorted(ranked ^ was_told):
            yield f"{s.tag.name}: the ranks at {bucket:g} of a run and the record of {stray} disagree"
    ended = {i: e for i, e in records.items() if e.end_place is not None and e.status != "retracted"}
    for stray in sorted(s.ends ^ ended.keys()):
        yield f"{s.tag.name}: the ends of ranked runs and the record of {stray} disagree"
    for bucket, told in s.told.items():
        have = sum(repr(bucket) in (e.places or {}) for e in ended.values())
        if told != have:
            yield f"{s.tag.name}: {told:g} ends tell of the ranks at {bucket:g}, by the records {have}"


def door_violations(operators: Sequence[str], closed_at: str | None) -> Iterator[str]:
    """Every violation of who is let in, as text: a lab is closed since its first operator's token, and only since."""
    if operators and closed_at is None:
        yield f"the lab is open, though operators have {len(operators)} tokens"
    if closed_at is not None and not operators:
        yield f"the lab is closed since {closed_at}, though no operator has a token"


def pool_violations(s: PoolSnapshot) -> Iterator[str]:
    for gpu in s.gpus:
        if (gpu.status == "idle") != (gpu.gpu_id in s.idle):
            yield f"{gpu.gpu_id} is {gpu.status}, but the index of idle GPUs disagrees"
        if (gpu.holder is not None) != (gpu.gpu_id in s.leases):
            yield f"{gpu.gpu_id} is held by {gpu.holder}, but the index of leases disagrees"
        if gpu.status != (follows := _status_by_flags(gpu)):
            yield f"{gpu.gpu_id} is {gpu.status}, its flags say {follows}"
        if gpu.status == "idle" and gpu.footprint is not None:
            yield f"{gpu.gpu_id} is idle, but not proven empty after its last run"
        if gpu.leaving is not None and gpu.keeper not in (None, gpu.leaving):
            yield f"{gpu.gpu_id} takes no runs, because {gpu.leaving} leaves it, but {gpu.keeper} serves it"
        if (gpu.tripped is None) != (gpu.tripped_until is None):
            yield f"{gpu.gpu_id}: only one of tripped and tripped_until is set"
        if gpu.holder is not None and gpu.holder not in s.experiments:
            yield f"{gpu.gpu_id} is held by {gpu.holder}, which does not exist"
    owned = Counter((gpu.owner, gpu.of_agent) for gpu in s.gpus if gpu.owner is not None)
    for owner in sorted(owned.keys() | s.owned.keys()):
        if (counted := s.owned.get(owner, 0)) != owned[owner]:
            yield f"{owner[0]!r} has registered {owned[owner]} GPUs, counted are {counted}"
    holders = Counter(gpu.holder for gpu in s.gpus if gpu.holder is not None)
    for holder, count in holders.items():
        if count > 1:
            yield f"{holder} holds {count} GPUs"
    fences = {gpu.gpu_id: (gpu.holder, gpu.fence) for gpu in s.gpus}
    for e in s.experiments.values():
        waits_aside = e.status == "queued" and (
            e.tag in s.paused_tags
            or (e.tag in s.baselines and s.baselines[e.tag] not in (e.experiment_id, e.retest_of))
        )
        if (e.status == "queued" and not waits_aside) != (e.experiment_id in s.queue):
            yield f"{e.experiment_id} is {e.status}, but the wait queue disagrees"
        if waits_aside != (e.experiment_id in s.parked):
            yield f"{e.experiment_id} is {e.status}, but the queue of paused tags disagrees"
        # a swarm's worker needs no GPU of the pool
        is_lent = e.status in ("leased", "running") and e.worker_id is None
        if is_lent and fences.get(e.gpu_id or "") != (e.experiment_id, e.fence):
            yield f"{e.experiment_id} is {e.status}, but {e.gpu_id} is not lent to it with fence {e.fence}"
        if (e.status == "registered") != (e.experiment_id in s.open):
            yield f"{e.experiment_id} is {e.status}, but the index of registered experiments disagrees"
    for experiment_id in sorted((s.queue | s.parked | s.open) - s.experiments.keys()):
        yield f"{experiment_id} is in an index of waiting experiments, but has ended or does not exist"
    for gpu_id in sorted((s.idle | s.leases) - {gpu.gpu_id for gpu in s.gpus}):
        yield f"{gpu_id} is in the index of idle or leased GPUs, but not in the pool"
    for tag in sorted(s.paused ^ s.paused_tags):
        yield f"{tag}: its record and the index of paused tags disagree"
    for experiment_id in sorted(s.starting):
        begins = s.experiments.get(experiment_id)
        if begins is None or begins.status != "leased":
            yield f"{experiment_id} is in the index `starting`, but is not leased"


def _status_by_flags(gpu: Gpu) -> GpuStatus:
    """The status by its flags; repeats the scripts' rule on purpose, to check it."""
    if gpu.offline:
        return "offline"
    if gpu.holder is not None:
        return "training"
    if gpu.sick is not None or gpu.tripped is not None:
        return "unhealthy"
    return "draining" if gpu.drained or gpu.unproven or gpu.leaving else "idle"
