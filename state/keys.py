"""Every key of a lab, by name; `python -m state` prints the families."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.records import OPEN

if TYPE_CHECKING:
    from state.records import Experiment


@dataclass(frozen=True)
class Family:
    """Keys of one shape."""

    pattern: str
    kind: str
    meaning: str


FAMILIES = (
    Family("layout", "string", "number of the data's layout"),
    Family("schema", "string", "the same in version 0.1: a lab that has it is refused"),
    Family("identity", "string", "random name of the lab, made with it"),
    Family("restoring", "hash", "the restore at work; no process opens the lab until it is done"),
    Family("tags", "zset", "tags by creation time"),
    Family("tags:<tag>", "hash", "one tag with its counters"),
    Family("policy:<tag>", "hash", "its research policy and the policy's version"),
    Family("decided:<tag>", "hash", "what workers may run for it: see `state/decided.py`"),
    Family("signing_keys:<id>", "string", "public key of a process that signs what workers run, for 24 h"),
    Family("strategy:<tag>", "hash", "how its search goes on"),
    Family("agent_limits:<tag>", "hash", "the newest usage limit of each agent that `nightjar agent` runs"),
    Family("dimensions:<tag>", "hash", "what a swarm may vary in it, as one list, and the list's version"),
    Family("proposed_dimensions:<tag>", "hash", "dimensions that were proposed to add to it, by their ids"),
    Family("stalls:<tag>", "hash", "counts the changes of these, and the stall cycles of its search"),
    Family("crashes:<tag>", "hash", "crashes in a row, and in all"),
    Family("best:<tag>", "hash", "the best experiment under the tag's main key"),
    Family("best:<tag>:<key>", "hash", "the best under another comparability key"),
    Family(
        "keeps:<tag>", "zset", "keeps that beat the best of their time under the tag's main key, by value"
    ),
    Family("keeps:<tag>:<key>", "zset", "the same under another comparability key"),
    Family("beaten:<tag>", "zset", "what was judged and did not beat the best, by value; branch keeps too"),
    Family("beaten:<tag>:<key>", "zset", "the same under another comparability key"),
    Family("near_misses:<tag>", "zset", "discarded experiments by value, lower is better"),
    Family("lineage:<tag>", "zset", "experiments by number"),
    Family("finished:<tag>", "zset", "experiments in finish order"),
    Family("status:<tag>:<status>", "zset", "experiments of one status by number"),
    Family("status:<tag>:<status>:<category>", "zset", "the same of one category"),
    Family("category:<tag>:<category>", "zset", "experiments of one category by number"),
    Family("categories:<tag>", "hash", "total and kept of every category"),
    Family("noise:<tag>:<class>", "hash", "how far runs of the same code differ on one class of GPU"),
    Family("noise:<tag>:<class>:runs:<code>", "zset", "the runs of one code by when they ended"),
    Family(
        "reference_times:<tag>",
        "hash",
        "how long its baseline trained, or the first run with a value, by GPU class and budget",
    ),
    Family(
        "tried:<tag>",
        "hash",
        "patches and commits, with their constants: the first experiment that tried each",
    ),
    Family("experiments:<id>", "hash", "one experiment"),
    Family(
        "retests:<tag>", "zset", "retests that are over, by the number of the experiment that they repeat"
    ),
    Family("attempts:<id>", "hash", "its attempts on workers"),
    Family("reports:<id>", "list", "its newest ticks as [progress, metric, time]"),
    Family(
        "ranks:<tag>:<class>:<bucket>",
        "zset",
        "runs by what they had at a bucket on one class of GPU, or on all; see `state/experiments/ranking.py`",
    ),
    Family("rank_classes:<tag>", "hash", "the names of the GPU classes that have such ranks"),
    Family("ends:<tag>:<class>", "zset", "runs that were ranked on their way, by what they ended with"),
    Family(
        "trends:<tag>:<class>",
        "hash",
        "at each bucket, how many runs were stopped, and sums over those that ended; see `state/facts.py:Trend`",
    ),
    Family("swarms", "zset", "tags that have a swarm by when its first worker joined"),
    Family("handed_out", "zset", "runs of swarms by when they are lost without a word from their worker"),
    Family("swarm_workers:<id>", "hash", "one worker of a swarm"),
    Family("swarm_members:<tag>", "zset", "its swarm's workers by number"),
    Family("swarm_seen:<tag>", "zset", "its swarm's workers by when they were last heard of"),
    Family("assigned:<tag>", "hash", "the population of each of its swarm's workers"),
    Family(
        "worker_runs:<id>",
        "zset",
        "runs of a swarm's worker by what they add to its baseline, the best first",
    ),
    Family("leaders:<tag>", "zset", "its swarm's workers by their best run, the best first"),
    Family("configs:<tag>", "hash", "how often each config was tried, and how many runs of it are in flight"),
    Family("proposals:<tag>:<population>", "zset", "configs that wait for a worker, the first at the front"),
    Family("hypotheses:<tag>", "hash", "its hypotheses that results still bear on"),
    Family("archived_hypotheses:<tag>", "hash", "its hypotheses that are refuted, or irrelevant"),
    Family("hypothesis_evidence:<tag>", "hash", "the newest evidence of each of them"),
    Family("unpaired:<tag>", "hash", "runs that wait for a reference run to be compared with, by hypothesis"),
    Family("used_references:<tag>", "hash", "reference runs that were compared with, by hypothesis"),
    Family(
        "part_sums:<tag>",
        "hash",
        "sums of what runs are judged by, by worker and part of a range, by hypothesis",
    ),
    Family("references:<tag>", "list", "its newest runs of reference configs, the newest last"),
    Family("reprieved:<tag>", "hash", "what runs came to that had one rank at one bucket and went on"),
    Family("beliefs:<tag>", "hash", "counts the changes of its beliefs, the results and the allocations"),
    Family("populations:<tag>", "hash", "its populations: who tests which hypothesis, and how"),
    Family(
        "pipeline:<tag>",
        "hash",
        "the draft of its next program, the one confirmed last, and how drafts have fared",
    ),
    Family("journal:<tag>", "list", "its checkpoints, as Markdown, the newest last"),
    Family(
        "last_checkpoint:<tag>", "string", "what was believed, and who tested what, at the newest of them"
    ),
    Family("told_graph:<tag>", "hash", "its hypotheses in a language model's words, and what they tell of"),
    Family("program_base", "hash", "the charter of every program, and its digest"),
    Family("program_bases", "hash", "all charters that there were, by digest"),
    Family("programs:<tag>", "list", "the versions of its program, the newest last"),
    Family("program_ask:<tag>", "hash", "which version a language model was asked for, when and why"),
    Family("program_asks", "zset", "tags of which one was asked for, by when"),
    Family("evidence:<id>", "hash", "results that came too late to count"),
    Family("log:<id>", "string", "the newest lines of its log"),
    Family("diffs:<sha256>", "string", "a patch, compressed by zlib"),
    Family("patch_uses", "string", "how often a patch was used anew: archiving looks again"),
    Family("archived", "zset", "patches that the archive has, by when they left Redis"),
    Family("stored:<owner>", "hash", "bytes that a token's owner has stored, for a day"),
    Family("open", "zset", "registered experiments by when they are lost without a word from their agent"),
    Family("forest:<tag>", "hash", "its traces' counters: selections made, epoch, virtual time, newest node"),
    Family("traces:<tag>", "zset", "its traces by number"),
    Family(
        "live_traces:<tag>", "zset", "live traces, and pending ones (first experiment unfinished), by number"
    ),
    Family("trace:<id>", "hash", "one trace: a branch of experiments with its tip and its base"),
    Family("of_trace:<id>", "zset", "experiments that were made for a trace, by number"),
    Family("selections:<id>", "hash", "what one experiment is made from; for 24 h once it is over"),
    Family("open_selections:<tag>", "zset", "open selections by their lease's end, endless once registered"),
    Family("queue", "zset", "experiments that wait for any GPU, in order"),
    Family("queue:<gpu_id>", "zset", "experiments that wait for this GPU, in the same order"),
    Family("paused", "zset", "paused tags by when they were paused"),
    Family("baselines", "zset", "tags whose baseline has not ended, by when that was submitted"),
    Family("parked:<tag>", "zset", "what waits aside for any GPU, with its places: see paused and baselines"),
    Family("parked:<tag>:<gpu_id>", "zset", "what waits aside for this GPU"),
    Family("queue_clock", "hash", "the queues' rounds, per agent"),
    Family("starting", "zset", "leased experiments that no worker has begun, by lease time"),
    Family("gpus", "zset", "GPUs by registration time"),
    Family("gpu_pool:<gpu_id>", "hash", "one GPU or CPU slot with its lease and health"),
    Family("agent_gpus", "hash", "how many GPUs each agent has registered for itself"),
    Family("worker_gpus", "hash", "how many GPUs the bearer of each other token has registered for the lab"),
    Family("idle_gpus", "zset", "idle GPUs, longest idle first"),
    Family("leases", "zset", "leased GPUs by the lease's end"),
    Family("sweep", "hash", "when the last sweep was, and until when no lease is broken after a gap"),
    Family("fence", "string", "the newest fencing token"),
    Family("events", "stream", "everything that happened"),
    Family("bindings", "zset", "consumer groups, `<stream> <group>`, by when they were last served"),
    Family("webhooks", "zset", "webhooks by when they were added"),
    Family("webhooks:<id>", "hash", "one receiver of events: its URL, its secret, what it wants"),
    Family("deliveries:<id>", "hash", "how the deliveries to a webhook went"),
    Family("dead_letters", "stream", "events that their handler failed on too often"),
    Family("redriven:<binding>", "stream", "dead letters that are to be delivered again"),
    Family("ticks:<function>", "stream", "firings of the clock that wait for their function"),
    Family(
        "tick:<function>",
        "hash",
        "until when its firings are decided, counts of them, whether it is paused",
    ),
    Family("runs:<digest>", "string", "what became of a request to fire a function by hand, for 24 h"),
    Family(
        "requests:<digest>",
        "string",
        "the experiment or selection that a request id made, and its body's digest, for 24 h",
    ),
    Family("answers:<digest>", "string", "the answer to an idempotency key, for 24 h"),
    Family("closed", "string", "when the first operator's token was issued; missing: the lab is open"),
    Family("tokens", "zset", "tokens by creation time"),
    Family("tokens:<id>", "hash", "one token: its owner, and the digest of its secret"),
    Family("token_names", "hash", "token ids by owner's name in lower case, with - in front once revoked"),
    Family(
        "token_use", "hash", "when each token was last used, and the digest of its newest secret that was"
    ),
    Family("joining", "string", "when the bucket of registrations with the team's secret is empty"),
    Family("tries:<address>", "string", "wrong tokens that an address tried to sign in with, for a minute"),
    Family("sessions:<digest>", "string", "a browser's session: its token, for 12 h"),
    Family("token_sessions:<token>", "list", "keys of its sessions, the newest last"),
    Family("codes:<digest>", "string", "what signs one browser in: its token, for 10 minutes"),
    Family("tickets:<digest>", "string", "what opens one event stream: its token, for 30 s"),
    Family(
        "author_budget",
        "hash",
        "what the language model has cost in the day, and what is reserved of its budget",
    ),
    Family("tallies", "hash", "what processes counted, those that have ended too"),
    Family("processes", "zset", "processes by when they were last seen"),
    Family("process_facts", "hash", "what each process is"),
)


OF_THE_LAB = frozenset(family.pattern for family in FAMILIES if "<" not in family.pattern)
OF_A_TAG = frozenset(
    family.pattern.removesuffix(":<tag>") for family in FAMILIES if family.pattern.endswith(":<tag>")
)
"""Families of which the lab, or a tag, has one key: a move that declares one of these names need not be given it."""


@dataclass(frozen=True)
class Keys:
    """Key names of the lab `lab`; all share the Redis Cluster hash tag `{lab}`."""

    lab: str

    def __call__(self, *parts: str) -> str:
        return ":".join((f"{{{self.lab}}}", *parts))

    def implied(self, names: Collection[str], tag: str | None) -> dict[str, str]:
        """The keys of those names of which the lab, or the tag `tag`, has only one."""
        lab = f"{{{self.lab}}}:"
        found = {name: lab + name for name in names if name in OF_THE_LAB}
        if tag is not None:
            own = (name for name in names if name in OF_A_TAG and name not in found)
            found |= {name: f"{lab}{name}:{tag}" for name in own}
            if "tag" in names:
                found["tag"] = self.tag(tag)
        return found

    def tag(self, tag: str) -> str:
        return self("tags", tag)

    def experiment(self, experiment_id: str) -> str:
        return self("experiments", experiment_id)

    def attempts(self, experiment_id: str) -> str:
        return self("attempts", experiment_id)

    def gpu(self, gpu_id: str) -> str:
        return self("gpu_pool", gpu_id)

    def queue(self, pinned_gpu: str | None = None) -> str:
        """Where an experiment waits: for its own GPU, or in the common queue."""
        return self("queue", pinned_gpu) if pinned_gpu else self("queue")

    def parked(self, tag: str, pinned_gpu: str | None = None) -> str:
        """Where an experiment waits while its tag is paused, with its place in the queue."""
        return self("parked", tag, pinned_gpu) if pinned_gpu else self("parked", tag)

    def status(self, tag: str, status: str, category: str) -> tuple[str, str]:
        """The index of a status, and that of the status within a category."""
        return self("status", tag, status), self("status", tag, status, category)

    def indexes(self, e: Experiment, status: str) -> tuple[str, str]:
        """Where it is listed while it has this status: a retest that is over stands beside the tag's experiments."""
        if e.retest_of is not None and status not in OPEN:
            return self("retests", e.tag), self("retests", e.tag)
        return self.status(e.tag, status, e.category)

    def relisted(self, e: Experiment, before: str, after: str) -> dict[str, str]:
        """The indexes that an experiment leaves and enters as its status changes, named as in `_listing.lua`."""
        left, entered = self.indexes(e, before), self.indexes(e, after)
        names = ("status_before", "category_before", "status_after", "category_after")
        return dict(zip(names, (*left, *entered), strict=True))

    def trace(self, trace_id: str) -> str:
        return self("trace", trace_id)

    def of_trace(self, trace_id: str) -> str:
        """The index of a trace's experiments."""
        return self("of_trace", trace_id)

    def selection(self, selection_id: str) -> str:
        return self("selections", selection_id)

    def best(self, tag: str, other_key: str | None = None) -> str:
        """Best of the main comparability key, or of another."""
        return self("best", tag, other_key) if other_key else self("best", tag)

    def keeps(self, tag: str, other_key: str | None = None) -> str:
        """The index of keeps that beat the best of their time."""
        return self("keeps", tag, other_key) if other_key else self("keeps", tag)

    def beaten(self, tag: str, other_key: str | None = None) -> str:
        """The index of everything else that was judged."""
        return self("beaten", tag, other_key) if other_key else self("beaten", tag)

    def standing(self, tag: str, other_key: str | None, status: str, *, improved: bool | None) -> str:
        """The one of the two that a judged experiment is in."""
        return (self.keeps if status == "keep" and improved is not False else self.beaten)(tag, other_key)
