"""Measures `nightjar distil` on planted chains: what it drops and keeps, in how many runs, and its branches.

    .venv/bin/python -P -m bench.distil

A chain has 20 keeps, of which 8 have no effect. The other 12 are worth what the option `--effects` says, in sigmas of
a run, drawn evenly between the two ends. Noise is normal. It is as well known as after a night of the rule
`confirmed`, which runs each keep twice. All keeps are as long, so the newest is left out first. The lab's rule
(`functions/trust/rules/distilling.py`) decides; only the runs are simulated. A chain is a hit if 7 or more of the 8
are dropped, 11 or more of the 12 stay, and at most 40 runs are taken.

Git makes the branches of the first chains in a real repository. Some keeps there change the line below that of the
keep before. Each branch has to apply to the base commit alone, and together they hold every keep that stays.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
from rich.table import Table

from bench._report import Bench
from functions.kernel.clone import WholeCode, recombined
from functions.kernel.git import command, environment
from functions.kernel.off_loop import Children
from functions.trust.distilling import BASE, independent
from functions.trust.rules.distilling import (
    Finish,
    LeaveOut,
    RepeatRun,
    finished,
    following,
    left_out,
    most_runs,
)
from functions.trust.rules.noise import near_margin, pooled
from state.errors import Conflict
from state.facts import Spread
from state.policy import Policy
from state.records import ChainChange, Distillation, Experiment

KEEPS, WITHOUT_EFFECT = 20, 8
SIGMA = 0.01


class Chain:
    """A planted chain, and the runs of its distillation."""

    def __init__(self, effects: Sequence[float], rng: np.random.Generator) -> None:
        self.effects = dict(zip((f"m-{nth}" for nth in range(2, len(effects) + 2)), effects, strict=True))
        self.rng = rng
        self.runs: dict[str, list[Experiment]] = {}
        self.night = (KEEPS + 2, SIGMA**2 * rng.chisquare(KEEPS + 2))
        """Noise that the night has left: the rule `confirmed` ran each keep again, and the baseline twice."""
        names = [*self.effects]
        changes = [
            ChainChange(experiment_id=name, above=above, description=name, lines=2)
            for above, name in pairwise([None, *names])
            if name is not None
        ]
        self.one = Distillation(
            tag="m",
            into="m-distil1",
            best=names[-1],
            direction="minimize",
            most_runs=most_runs(len(names)),
            run_s=300.0,
            state="running",
            changes=tuple(changes),
            reference="whole",
            smallest="whole",
        )
        self.left_out: dict[str, set[str]] = {"whole": set()}
        self.run("whole", 1)

    def run(self, name: str, count: int) -> None:
        """Run this code until it has so many runs."""
        its = self.runs.setdefault(name, [])
        while len(its) < count:
            value = 1.0 + SIGMA * (
                sum(map(self.effects.__getitem__, self.left_out[name])) + self.rng.standard_normal()
            )
            its.append(
                Experiment(
                    experiment_id=f"{name}.{len(its) + 1}" if its else name,
                    status="measured" if its else "discard",
                    tag="m-distil1",
                    hypothesis="",
                    description="",
                    category="ablation",
                    commit_sha="",
                    diff_summary="",
                    number=1,
                    registered_at=0.0,
                    val_bpb=value,
                    gpu_class="cpu",
                )
            )

    def distilled(self) -> Distillation:
        """Take every step."""
        while self.one.state == "running":
            here = pooled([run.val_bpb or 0.0 for run in its] for its in self.runs.values())
            df, squares = self.night[0] + (here.df if here else 0), self.night[1]
            noise = Spread(df, squares + (here.df * here.sigma**2 if here else 0.0)).noise
            step = following(self.one, self._known(), noise, near_margin(Policy(), noise))
            match step:
                case None:
                    raise AssertionError("no run is awaited")
                case RepeatRun(name, count):
                    self.run(name, count)
                case LeaveOut(change):
                    without = f"without {change.experiment_id}"
                    self.left_out[without] = self.left_out[self.one.smallest or ""] | {change.experiment_id}
                    self.run(without, 1)
                    self.one = left_out(self.one, change, without)
                case Finish():
                    self.one = finished(self.one, self._known(), noise, ())
                case after:
                    self.one = after
        return self.one

    def _known(self) -> dict[str, list[Experiment]]:
        trying = self.one.trying
        names = {self.one.reference, self.one.smallest, trying.without if trying else None} - {None}
        return {str(name): self.runs[str(name)] for name in names}

    def is_hit(self) -> bool:
        dropped, kept = self.found()
        return dropped >= WITHOUT_EFFECT - 1 and kept >= KEEPS - WITHOUT_EFFECT - 1 and self.one.runs <= 40

    def found(self) -> tuple[int, int]:
        """Changes without effect that were dropped, and others that stay."""
        dropped = {change.experiment_id for change in self.one.changes if not change.stays}
        idle = {name for name, effect in self.effects.items() if effect == 0}
        return len(dropped & idle), len(self.effects.keys() - idle - dropped)


def planted(low: float, high: float, rng: np.random.Generator) -> Chain:
    worth = rng.uniform(low, high, KEEPS - WITHOUT_EFFECT)
    return Chain([float(e) for e in rng.permutation([0.0] * WITHOUT_EFFECT + [*worth])], rng)


async def branches(chain: Chain, folder: Path) -> tuple[int, int]:
    """Parts of what stays, and how many of them apply to the base commit of a real repository."""

    def git(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command(folder, "-c", "user.name=n", "-c", "user.email=n@example.org", *words),
            input=stdin,
            capture_output=True,
            env=environment(),
            check=False,
        )

    names = [*chain.effects]
    stay = [change.experiment_id for change in chain.one.changes if change.stays]
    above = set(stay[::3])  # the next keep that stays, if it is the next one, changes the line below
    lines = [
        f"{name} = 0\n" + ("" if name in above and after in stay else "\n" * 9)
        for name, after in pairwise([*names, ""])
    ]
    git("init", "--quiet")
    codes: dict[str | None, WholeCode] = {None: BASE}
    base = ""
    for nth in range(len(names) + 1):
        text = "".join(line.replace("= 0", "= 1") for line in lines[:nth]) + "".join(lines[nth:])
        (folder / "train.py").write_text(text)
        git("add", "--all")
        git("commit", "--quiet", "--message", "change")
        base = base or git("rev-parse", "HEAD").stdout.decode().strip()
        if nth:
            codes[names[nth - 1]] = WholeCode(git("diff", "--binary", base, "HEAD").stdout, {})
    moves = {
        change.experiment_id: (codes[change.above], codes[change.experiment_id])
        for change in chain.one.changes
    }
    children = Children()

    async def patch(part: Sequence[str]) -> bytes | None:
        try:
            return await recombined(folder, children, base, BASE, [moves[name] for name in part])
        except Conflict:
            return None

    async def applies(part: Sequence[str]) -> bool:
        return await patch(part) is not None

    parts = await independent(stay, applies)
    git("checkout", "--quiet", base)
    good = [git("apply", "--check", "-", stdin=await patch(part) or b"").returncode == 0 for part in parts]
    assert sorted(name for part in parts for name in part) == sorted(stay)
    return len(parts), sum(good)


@click.command()
@click.option("--chains", default=500, show_default=True)
@click.option("--with-git", default=3, show_default=True, help="chains whose branches git makes")
@click.option(
    "--effects", type=(float, float), default=(3.0, 6.0), show_default=True, help="worth of a keep in sigmas"
)
@click.option("--seed", default=1, show_default=True, help="of the chance")
def main(chains: int, with_git: int, effects: tuple[float, float], seed: int) -> None:
    """Run the bench."""
    bench, rng = Bench(), np.random.default_rng(seed)
    table = Table("keeps worth", "found", "asked")
    first = list[Chain]()
    for low, high in (effects, (2.0, 5.0), (1.5, 1.5)):
        made = [planted(low, high, rng) for _ in range(chains)]
        for chain in made:
            chain.distilled()
        hits = sum(chain.is_hit() for chain in made)
        dropped, kept = np.mean([chain.found() for chain in made], axis=0)
        runs = [chain.one.runs for chain in made]
        said = f"{hits / chains:.1%} hits: dropped {dropped:.2f} of 8, kept {kept:.2f} of 12,"
        said += f" {np.mean(runs):.1f} runs, {max(runs)} at most"
        is_asked = not first
        bench.row(
            table,
            f"{low:g} to {high:g} sigma",
            said,
            ">= 95 % hits" if is_asked else "",
            is_hit=not is_asked or hits >= 0.95 * chains,
        )
        first = first or made
    for nth, chain in enumerate(first[:with_git], 1):
        with tempfile.TemporaryDirectory() as folder:
            parts, good = asyncio.run(branches(chain, Path(folder)))
        dropped, kept = chain.found()
        said = f"dropped {dropped}, kept {kept}, {chain.one.runs} runs; {good} of {parts} branches apply to the base"
        is_hit = chain.is_hit() and good == parts
        bench.row(table, f"chain {nth}, with git", said, ">= 7, >= 11, <= 40; all", is_hit=is_hit)
    bench.console.print(table)
    bench.end(f"{chains} chains each")


if __name__ == "__main__":
    main()
