"""A tag with its counters, and how its search goes on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from state.records.base import Record
from state.records.experiments import Score

Direction = Literal["minimize", "maximize"]


Mode = Literal["explore", "exploit", "combine", "ablation"]


class AgentLimit(Record):
    """The newest usage limit that an agent of `nightjar agent` has met; times in seconds since 1970."""

    agent: str
    since: int
    until: int
    """When it is started again."""
    said: str
    """The line that it printed."""
    times: int = 1
    """Number of limits so far."""


class Counters(Record):
    """A tag's experiments, counted by `state.derived`. The results that were retracted count in nothing else.

    A new counter begins at 0 in a tag that has runs already: raise `LAYOUT` in `state/client.py` with it.
    """

    total: int = 0
    """Those that ended as keep, discard, crash or timeout."""
    kept: int = 0
    discarded: int = 0
    crashed: int = 0
    """Crashes and timeouts."""
    stopped: int = 0
    lost: int = 0
    invalid: int = 0
    retracted: int = 0
    claimed: int = 0
    """Claims: discards that only their agents measured, in a tag that the lab measures. They count nowhere else."""
    baselines: int = 0
    """1 once the baseline has its value: it counts as finished, and neither as kept nor as discarded."""
    repeated: int = 0
    """Retests of a swarm's runs that ended with a value."""
    contended: int = 0
    """Runs, retests too, of which another program slowed an attempt down."""


class Tag(Counters):
    """One line of research."""

    name: str
    branch: str
    created_at: float
    metric: str = "val_bpb"
    direction: Direction = "minimize"
    target: float | None = None
    base_commit: str | None = None
    evaluator: str = "prepare.py"
    evaluator_files: list[str] = Field(default_factory=list)
    """Other files and folders of the repository that the score depends on."""
    evaluator_command: str | None = None
    """Command that measures the score after each training, from the base commit's files. None: train.py prints it."""
    hidden_split: bool = False
    """Its evaluator measures a second number, which decides on keeps and which agents never see."""
    test_split: bool = False
    """And a third one, once for each experiment in a certificate."""
    baseline_id: str | None = None
    """The run of the base commit's own code that came before all others of the lab."""
    baseline_val_bpb: float | None = None
    """Value under the tag's main comparability key."""
    largest_gain: float | None = None
    """Largest gain of a keep over the best before it, implausible ones aside."""
    lab_measured: bool = False
    """The lab has measured a run: what agents measure themselves are claims."""
    lab_gpu_class: str | None = None
    """Class of GPU of the lab's own runs, rather of one under the main comparability key: there claims are run."""
    awaits_baseline: bool = False
    """The baseline has not ended, and nothing else of the tag is dispatched."""
    last_number: int = 0
    extended: int = 0
    """Runs that were given more time than others, for their rank, and have reported beyond their budget."""
    ticks: int = 0
    """Times that a run of it has reached a bucket."""
    finishes: int = 0
    """Finish numbers given out: `total`, and those of experiments that were retracted since."""
    training_ms: int = 0
    """What runs have reported as their training time, in milliseconds."""
    paused_at: float | None = None
    """Since when nothing of it is dispatched; None while it is not paused."""
    pause_reason: str | None = None
    stop_fence: int = 0
    """Newest fence when all its runs were told to stop. A lease with this fence or a lower one has to stop."""
    budget_gpu_seconds: float | None = None
    """Most GPU seconds that may be spent and reserved; None is no limit."""
    budget_runs: int | None = None
    reserved_gpu_ms: int = 0
    """Milliseconds set aside for open runs."""
    reserved_runs: int = 0
    spent_gpu_ms: int = 0
    """Milliseconds, as `state.derived` counts."""
    spent_runs: int = 0
    warned_gpu_seconds: bool | None = None
    """Whether the warning of this limit was given."""
    warned_runs: bool | None = None
    budget_patch_bytes: int | None = None
    spent_patch_bytes: int = 0
    """Bytes of new patches of its experiments, compressed."""
    key_version: int = 0
    key_gpu_class: str | None = None
    key_evaluator_hash: str | None = None
    key_budget_seconds: float | None = None

    @property
    def training_seconds(self) -> float:
        """Seconds that runs have reported as their training time."""
        return self.training_ms / 1000

    @property
    def reserved_gpu_seconds(self) -> float:
        """Seconds set aside for open runs."""
        return self.reserved_gpu_ms / 1000

    @property
    def spent_gpu_seconds(self) -> float:
        """Seconds spent."""
        return self.spent_gpu_ms / 1000

    @property
    def results(self) -> int:
        """Runs that ended with a value, or were stopped: what a swarm counts as its experiments."""
        return self.baselines + self.kept + self.discarded + self.stopped + self.repeated

    def holds_back(self, experiment_id: str) -> bool:
        """Whether an experiment waits aside: the tag is paused, or its baseline has not ended, and it is neither that
        nor a retest of it."""
        of_baseline = f"{experiment_id}.".startswith(f"{self.baseline_id}.")
        return self.paused_at is not None or (self.awaits_baseline and not of_baseline)

    @property
    def claims_class(self) -> str | None:
        """The class of GPU that a claim is run on; None: any."""
        return self.lab_gpu_class if self.lab_measured and self.lab_gpu_class else self.key_gpu_class

    @property
    def has_budget(self) -> bool:
        """Whether its runs are limited. The end of a run may make room for another."""
        return self.budget_gpu_seconds is not None or self.budget_runs is not None

    @property
    def takes_claims(self) -> bool:
        """Agents' own numbers count only after the lab has run the code."""
        return self.lab_measured or self.awaits_baseline or self.evaluator_command is not None

    @property
    def score(self) -> Score:
        """Source of its values, if the lab trains."""
        return "reported" if self.evaluator_command is None else "trusted"


class Strategy(Record):
    """Search strategy of a tag."""

    mode: Mode
    explore_ratio: float
    temperature: float
    reason: str
    updated_at: float = 0.0
    version: int = 0
    pinned_until: int = 0
    """Finish count up to which an operator's choice holds."""
    decided_at: int = 0
    """Finish count it was last decided at."""


def score(value: float, direction: Direction) -> float:
    """The value with lower = better: direction is applied here and nowhere else."""
    return value if direction == "minimize" else -value
