"""A train.py for a swarm: constants to vary, a budget constant, and reports during the run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from functions.formats.constants import read_constants, reseeded, settable_constants, trained_source
from functions.formats.parsing import decoded, last_name, parsed
from functions.swarm.rules.scanning import suggestion
from state.errors import Invalid

BUDGET: Final = "TOTAL_WALL_CLOCK_TIME"
"""The constant that holds the seconds of a run."""
REPORTING: Final = (
    "from nightjar_report import report",
    f"report(loss, seconds_so_far / {BUDGET})  # in the training loop",
)
"""The two lines that a script without reports lacks."""


@dataclass(frozen=True)
class SwarmScript:
    """A train.py as its owner wrote it."""

    source: bytes
    constants: Mapping[str, object]
    """All that can be set."""
    tunable: Mapping[str, object]
    """Those that a swarm may vary."""
    own_budget_s: float | None
    """The seconds of its own `TOTAL_WALL_CLOCK_TIME`; None where no number is there to be set."""
    reports: bool
    """Whether it calls `report`."""

    def lacks(self) -> Iterator[str]:
        """What the script lacks, each with its remedy."""
        if self.own_budget_s is None:
            yield (
                f"it has no {BUDGET}: every run takes as long as the script likes, and its result is compared with"
                f" those of other lengths. Add `{BUDGET} = 300` at its top level, in seconds, and end the training"
                " after them"
            )
        if not self.reports:
            first, second = REPORTING
            yield (
                "it calls no report: bad runs are not stopped early, and take their whole budget, unless it prints"
                " lines `step 00123 (12.3%) | loss: 2.34 |` and the swarm has stopping.tick_source stdout. Else add\n"
                f"    {first}\n    {second}"
            )

    def without(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are no constant of it."""
        return [name for name in names if name not in self.constants]

    def configured(
        self,
        values: Mapping[str, object],
        *,
        budget_s: float | None,
        seed: int | None,
        judge: str | None = None,
    ) -> bytes:
        """The script with these constants set, and its budget and seeds where it has them; the rest byte for byte.

        A constant that has its value already keeps its text. None: budget or seeds stay as they are. With a `judge`
        the script ends its run where it gives one of them another value.

        Raises:
            Invalid: one of the names is no constant of it.
        """
        wanted = dict(values)
        if budget_s is not None and self.own_budget_s is not None:
            wanted[BUDGET] = int(budget_s) if budget_s == int(budget_s) else budget_s
        text, encoding = decoded(self.source)
        return trained_source(text, wanted, seed, judge).encode(encoding)

    def config(self, values: Mapping[str, object], *, seed: int | None) -> dict[str, object]:
        """The config of a run with these values: all tunable constants and the seeds."""
        return {**self.tunable, **values, **({} if seed is None else reseeded(self.constants, seed))}


def read_swarm_script(source: bytes) -> SwarmScript:
    """Constants that a swarm may vary. The script is not run. Raises Invalid: no Python, or nothing to vary."""
    text, _ = decoded(source)
    constants = settable_constants(text)
    single = read_constants(text).items()
    tunable = {name: value for name, value in single if not isinstance(suggestion(name, value), str)}
    if not tunable:
        raise Invalid(
            "it has no constant that a swarm could vary",
            hint="move what is to be tuned to its top level, as `LEARNING_RATE = 0.001`",
        )
    own = constants.get(BUDGET)
    has_budget = isinstance(own, int | float) and not isinstance(own, bool)
    return SwarmScript(
        source=source,
        constants=constants,
        tunable=tunable,
        own_budget_s=float(own) if has_budget and isinstance(own, int | float) else None,
        reports=_reports(text),
    )


def _reports(text: str) -> bool:
    """Whether a function called `report` is called anywhere."""
    calls = (node for node in ast.walk(parsed(text)) if isinstance(node, ast.Call))
    return any(last_name(call.func) == "report" for call in calls)
