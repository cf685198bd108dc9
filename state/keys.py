"""Every key of a lab, by name; `python -m state` prints the families."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
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


FAMILIES = tuple(
    Family(*line.split(maxsplit=2))
    for line in """\
layout                           string number of the data's layout
schema                           string the same in version 0.1; a lab with this key is refused
identity                         string random name of the lab, made with it
restoring                        hash   the restore at work; no process opens the lab until it ends
tags                             zset   tags by creation time
tags:<tag>                       hash   one tag with its counters
policy:<tag>                     hash   its research policy and the policy's version
strategy:<tag>                   hash   its search strategy
agent_limits:<tag>               hash   the newest usage limit of each agent that `nightjar agent` runs
dimensions:<tag>                 hash   what its swarm may vary, as one list, and the version of the list
proposed_dimensions:<tag>        hash   proposed dimensions by id
stalls:<tag>                     hash   number of changes of these, and the stall cycles of its search
crashes:<tag>                    hash   number of crashes in a row, and in all
best:<tag>                       hash   the best experiment under the tag's main key
best:<tag>:<key>                 hash   the best under another comparability key
keeps:<tag>                      zset   keeps that beat the best of their time under the main key, by value
keeps:<tag>:<key>                zset   the same under another comparability key
beaten:<tag>                     zset   other judged experiments by value; branch keeps too
beaten:<tag>:<key>               zset   the same under another comparability key
near_misses:<tag>                zset   discarded experiments by value, the lowest first
lineage:<tag>                    zset   experiments by number
finished:<tag>                   zset   experiments in the order in which they finished
status:<tag>:<status>            zset   experiments of one status by number
status:<tag>:<status>:<category> zset   the same of one category
category:<tag>:<category>        zset   experiments of one category by number
categories:<tag>                 hash   total and kept of every category
noise:<tag>:<class>              hash   spread of runs of the same code on one class of GPU
noise:<tag>:<class>:runs:<code>  zset   runs of one code by when they ended
reference_times:<tag>            hash   seconds of its baseline, or of its first run with a value, by GPU class
tried:<tag>                      hash   first experiment of each patch or commit with its constants
experiments:<id>                 hash   one experiment
retests:<tag>                    zset   finished retests by the number of the experiment that they repeat
hidden:<tag>                     hash   numbers of its test split, by experiment, and how often it was read
hidden:<tag>:<class>             hash   numbers of its hidden split on one class of GPU, with their spread
certificates:<tag>               hash   newest certificate of each candidate that had one, by experiment
distillations                    hash   distillations of chains of keeps, by the tag of their runs
transfers                        hash   transfers of keeps to a longer budget, by the tag of their runs
attempts:<id>                    hash   its attempts on workers
reports:<id>                     list   its newest ticks as [progress, metric, time]
ranks:<tag>:<class>:<bucket>     zset   runs by value at one bucket; see state/experiments/ranking.py
rank_classes:<tag>               hash   names of the GPU classes with ranks
ends:<tag>:<class>               zset   ranked runs by their last value
trends:<tag>:<class>             hash   for each bucket: stopped runs, and sums over the others; see state/facts.py
swarms                           zset   tags with a swarm by when its first worker joined
handed_out                       zset   runs of swarms by when they are lost without a sign of life
swarm_workers:<id>               hash   one worker of a swarm
swarm_members:<tag>              zset   its swarm's workers by number
swarm_seen:<tag>                 zset   its swarm's workers by when they were last seen
assigned:<tag>                   hash   the population of each of its swarm's workers
in_flight:<tag>                  hash   runs that its workers were handed out and have not ended, by population
worker_runs:<id>                 zset   runs of a swarm's worker by delta_bpb, the best first
leaders:<tag>                    zset   its swarm's workers by their best run, the best first
configs:<tag>                    hash   how often each config was tried, and its runs in flight
proposals:<tag>:<population>     zset   configs that wait for a worker, the next one first
hypotheses:<tag>                 hash   its open hypotheses
archived_hypotheses:<tag>        hash   its refuted or irrelevant hypotheses
hypothesis_evidence:<tag>        hash   newest evidence of each hypothesis
unpaired:<tag>                   hash   runs that wait for a reference run, by hypothesis
used_references:<tag>            hash   reference runs that are already paired, by hypothesis
part_sums:<tag>                  hash   sums of values by worker and part of a range, by hypothesis
references:<tag>                 list   newest runs of reference configs, the newest last
reprieved:<tag>                  hash   final values of runs that had one rank at one bucket and went on
beliefs:<tag>                    hash   number of changes of its beliefs, of results and of allocations
populations:<tag>                hash   its populations: the workers that test a hypothesis, and how
pipeline:<tag>                   hash   draft of its next program, the last confirmed one, and the record of drafts
journal:<tag>                    list   its checkpoints, as Markdown, the newest last
last_checkpoint:<tag>            string beliefs and allocations at the newest checkpoint
told_graph:<tag>                 hash   model-written summary of its hypothesis graph
program_base                     hash   the charter of every program, and its digest
program_bases                    hash   all charters so far, by digest
programs:<tag>                   list   versions of its program, the newest last
program_ask:<tag>                hash   version that a language model was asked for, when and why
program_asks                     zset   tags that wait for such a version, by when it was asked for
evidence:<id>                    hash   results that came too late to count
log:<id>                         string the newest lines of its log
diffs:<sha256>                   string a patch, compressed by zlib
patch_uses                       string number of new uses of patches; archiving checks it
archived                         zset   patches of the archive by when they left Redis
stored:<owner>                   hash   bytes that a token's owner has stored, for a day
open                             zset   registered experiments by when they are lost without a sign of life
forest:<tag>                     hash   its traces' counters: selections made, epoch, virtual time, newest node
traces:<tag>                     zset   its traces by number
live_traces:<tag>                zset   live traces, and pending ones (no experiment finished yet), by number
trace:<id>                       hash   one trace: a branch of experiments with its tip and its base
of_trace:<id>                    zset   experiments of a trace by number
selections:<id>                  hash   parent and trace of one experiment; kept for 24 h after its end
open_selections:<tag>            zset   open selections by their lease's end, endless once registered
queue                            zset   experiments that wait for any GPU, in order
queue:<gpu_id>                   zset   experiments that wait for this GPU, in the same order
paused                           zset   paused tags by when they were paused
baselines                        zset   tags whose baseline has not ended, by when that was submitted
parked:<tag>                     zset   experiments of a paused tag, or of one without a baseline, by their place
parked:<tag>:<gpu_id>            zset   the same, for this GPU
queue_clock                      hash   the queues' rounds by agent
starting                         zset   leased experiments that no worker has begun, by lease time
gpus                             zset   GPUs by registration time
gpu_pool:<gpu_id>                hash   one GPU or CPU slot with its lease and health
gpu_history:<gpu_id>             list   samples of the last 24 h, one in 2 minutes
environments                     hash   version of Python and packages that train on each GPU
agent_gpus                       hash   number of GPUs that each agent has registered for itself
worker_gpus                      hash   number of GPUs that the owner of each other token has registered
idle_gpus                        zset   idle GPUs, longest idle first
leases                           zset   leased GPUs by the lease's end
sweep                            hash   time of the last sweep, and until when no lease is broken after a gap
fence                            string the newest fencing token
events                           stream everything that happened
bindings                         zset   consumer groups, `<stream> <group>`, by when they were last served
webhooks                         zset   webhooks by when they were added
webhooks:<id>                    hash   one receiver of events: URL, secret, event types
deliveries:<id>                  hash   results of the deliveries to a webhook
dead_letters                     stream events whose handler failed too often
redriven:<binding>               stream dead letters to deliver again
ticks:<function>                 stream firings of the clock that wait for their function
tick:<function>                  hash   time up to which its firings are decided, their counts, and its pause
runs:<digest>                    string result of a request to fire a function by hand, for 24 h
requests:<digest>                string id that a request made, and the digest of its body, for 24 h
answers:<digest>                 string answer to an idempotency key, for 24 h
closed                           string time of the first operator's token; missing: the lab is open
tokens                           zset   tokens by creation time
tokens:<id>                      hash   one token: its owner, and the digest of its secret
token_names                      hash   token ids by owner in lower case; - before the id: revoked
token_use                        hash   last use of each token, and the digest of its newest used secret
rates:<token>                    string time at which the bucket of the token's rate limit is empty
joining                          string time at which the rate limit of registrations by the team's secret is free
tries:<address>                  string wrong tokens from an address, for a minute
sessions:<digest>                string a browser's session: its token, for 12 h
token_sessions:<token>           list   keys of its sessions, the newest last
codes:<digest>                   string sign-in code of a browser: its token, for 10 minutes
tickets:<digest>                 string ticket of one event stream: its token, for 30 s
author_budget                    hash   spent and reserved cost of language models today
own:<noun>                       hash   values of functions of your own, and their bytes
tallies                          hash   counts of all processes, ended ones too
processes                        zset   processes by when they were last seen
process_facts                    hash   kind and facts of each process
""".splitlines()
)
"""Pattern, type in Redis, and meaning of every key."""

OF_THE_LAB = frozenset(family.pattern for family in FAMILIES if "<" not in family.pattern)
OF_A_TAG = frozenset(
    family.pattern.removesuffix(":<tag>") for family in FAMILIES if family.pattern.endswith(":<tag>")
)
"""Families of which the lab, or a tag, has one key: a move that declares one of these names need not be given it."""

_KINDS: dict[tuple[str, bool], set[str]] = {}
for _family in FAMILIES:
    _name, _, _more = _family.pattern.partition(":")
    _KINDS.setdefault((_name, bool(_more)), set()).add(_family.kind)


@lru_cache(4096)
def kind_of(key: str) -> str:
    """The type of a key in Redis. Raises KeyError: no lab has such a key."""
    name, _, more = key.partition("}:")[2].partition(":")
    kinds = _KINDS.get((name, bool(more)))
    if kinds is None:
        raise KeyError(f"{key!r} is of no family: add it to FAMILIES in state/keys.py")
    if len(kinds) == 1:
        return next(iter(kinds))
    return "zset" if ":runs:" in more else "hash"  # noise:<tag>:<class>, and with :runs:<code> behind it


@dataclass(frozen=True)
class TagKeys:
    """Keys of one tag."""

    tag: str
    policy: str
    crashes: str
    best: str
    forest: str
    finished: str
    categories: str
    reference_times: str
    near_misses: str


@lru_cache(1024)
def _of_tag(lab: str, tag: str) -> TagKeys:
    names = (
        "policy",
        "crashes",
        "best",
        "forest",
        "finished",
        "categories",
        "reference_times",
        "near_misses",
    )
    return TagKeys(f"{{{lab}}}:tags:{tag}", *(f"{{{lab}}}:{name}:{tag}" for name in names))


@dataclass(frozen=True, eq=False)  # caches look it up often: by identity that is fast
class Keys:
    """Key names of the lab `lab`; all share the Redis Cluster hash tag `{lab}`."""

    lab: str

    def __call__(self, *parts: str) -> str:
        return ":".join((f"{{{self.lab}}}", *parts))

    def of(self, tag: str) -> TagKeys:
        """The keys of a tag that the end of each of its runs names."""
        return _of_tag(self.lab, tag)

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
        return f"{{{self.lab}}}:tags:{tag}"

    def experiment(self, experiment_id: str) -> str:
        return f"{{{self.lab}}}:experiments:{experiment_id}"

    def attempts(self, experiment_id: str) -> str:
        return f"{{{self.lab}}}:attempts:{experiment_id}"

    def gpu(self, gpu_id: str) -> str:
        return self("gpu_pool", gpu_id)

    def gpu_history(self, gpu_id: str) -> str:
        return self("gpu_history", gpu_id)

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
        """Indexes of an experiment with this status. Finished retests have an index of their own."""
        if e.retest_of is not None and status not in OPEN:
            return self("retests", e.tag), self("retests", e.tag)
        return self.status(e.tag, status, e.category)

    def relisted(self, e: Experiment, before: str, after: str) -> dict[str, str]:
        """The indexes that an experiment leaves and enters as its status changes, named as in `lease_gpu.lua`."""
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
        return self("best", tag, other_key) if other_key else f"{{{self.lab}}}:best:{tag}"

    def keeps(self, tag: str, other_key: str | None = None) -> str:
        """The index of keeps that beat the best of their time."""
        return self("keeps", tag, other_key) if other_key else self("keeps", tag)

    def beaten(self, tag: str, other_key: str | None = None) -> str:
        """The index of everything else that was judged."""
        return self("beaten", tag, other_key) if other_key else self("beaten", tag)
