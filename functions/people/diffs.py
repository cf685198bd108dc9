"""The code between two experiments, by git's diff in a child process."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

from pydantic import Field

from functions.experiments.views.runs import score_of
from functions.formats.patches import HEAD, between_codes, essence, text_of
from functions.kernel.contract import Request, Response, function
from functions.kernel.git import command, environment
from functions.kernel.off_loop import Children
from state.errors import Unavailable
from state.experiments import Experiments
from state.ids import ExperimentId
from state.records import Experiment

# -- The code between two patches, and each keep's own change, by git's diff in a child process.

DIFF_S = 10.0
"""Seconds for one diff; the worst patches of MOST_LINES take git 3 s."""
MOST_LINES = 400_000
"""Lines of a patch that is compared: git needs 100 bytes of memory for each."""
DIFFERENT = 1
"""The exit code of git where two files differ."""
LONGEST_DIFF = 4 * 1024 * 1024
"""Bytes of a diff that is answered."""

_DIFF = (
    *("diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--text"),
    *("--unified=4000000", "--", "a", "b"),
)


@dataclass(frozen=True)
class Between:
    diff: str | None = None
    """The change from a's code to b's, file by file; empty if they are equal."""
    cut: str | None = None
    """Why there is no diff, or where it ends early."""


async def between(patch_a: bytes, patch_b: bytes, name_a: str, name_b: str) -> Between:
    """The change from patch a to patch b. Raises Unavailable: there is no git on this machine, or it fails."""
    if max(patch.count(b"\n") for patch in (patch_a, patch_b)) > MOST_LINES:
        return Between(cut=f"a patch of more than {MOST_LINES:,} lines is not compared")
    a, b = await asyncio.to_thread(lambda: (essence(patch_a), essence(patch_b)))
    if a == b:
        return Between("")
    with tempfile.TemporaryDirectory(prefix="nightjar-diff-") as made:
        folder = await asyncio.to_thread(_written, Path(made), a, b)
        try:
            async with asyncio.timeout(DIFF_S):
                printed = await _printed(folder)
        except TimeoutError:
            return Between(cut=f"git took more than {DIFF_S:g} s for the diff: compare the patches yourself")
    return await asyncio.to_thread(_shown, printed, name_a, name_b)


def _written(folder: Path, a: bytes, b: bytes) -> Path:
    (folder / "a").write_bytes(a)
    (folder / "b").write_bytes(b)
    return folder.resolve()


async def _printed(folder: Path) -> bytes:
    """Git's diff of the files a and b, cut after LONGEST_DIFF + 1 bytes."""
    child = _begun(folder)
    assert child.stdout is not None
    try:
        printed = await asyncio.to_thread(child.stdout.read, LONGEST_DIFF + 1)
        if len(printed) <= LONGEST_DIFF and await asyncio.to_thread(child.wait) != DIFFERENT:
            raise Unavailable(
                f"git diff ended with {child.returncode} on the machine of the web process",
                hint="repeat it; or read both patches with experiment::get and compare them yourself",
            )
    finally:
        child.kill()  # nothing where it has ended
        child.wait()
        child.stdout.close()
    return printed


def _begun(folder: Path) -> subprocess.Popen[bytes]:
    """Git in a folder that is no repository, without settings, variables or secrets of anybody; no fork of uvloop."""
    env = environment(HOME=str(folder), GIT_CEILING_DIRECTORIES=str(folder.parent))
    try:
        return subprocess.Popen(command(folder, *_DIFF), env=env, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except FileNotFoundError as problem:
        raise Unavailable(
            "there is no git on the machine of the web process, and it makes the diff",
            hint="install git there, or read both patches with experiment::get and compare them yourself",
        ) from problem


def _shown(printed: bytes, name_a: str, name_b: str) -> Between:
    """The change between the codes, under the experiments' names."""
    whole = len(printed) <= LONGEST_DIFF
    hunks = printed[printed.find(b"\n@@ ") + 1 :]
    if not whole:
        hunks = hunks[: hunks.rfind(b"\n") + 1]
    change = between_codes(text_of(hunks) or "")
    diff = f"--- {name_a}\n+++ {name_b}\n{change}" if change else ""
    return Between(diff, None if whole else f"only its first {LONGEST_DIFF // 1024**2} MiB are shown")


LINES_SHOWN = 60
"""Lines of one change that are shown."""
CHANGES_S = 20.0
"""Seconds for all changes; later ones are not shown."""


async def own_changes(
    pairs: Sequence[tuple[bytes | None, bytes | None]], children: Children
) -> list[str | None]:
    """The changed lines of each pair of patches against one base commit.

    An empty patch is the base commit itself. If one is None, the change is not known.

    Raises:
        Unavailable: there is no git on this machine, or it fails.
    """
    give_up = time.monotonic() + CHANGES_S
    async with children.one():
        return [
            await _own_change(above, patch) if time.monotonic() < give_up else None for above, patch in pairs
        ]


async def _own_change(above: bytes | None, patch: bytes | None) -> str | None:
    if above is None or patch is None:
        return None
    if not above:
        return await asyncio.to_thread(_code, text_of(patch) or "")
    made = await between(above, patch, "a/", "b/")
    return None if made.diff is None else await asyncio.to_thread(_code, made.diff)


def _code(patch: str) -> str:
    """Its lines that add or remove code."""
    lines = [line for line in patch.splitlines() if line[:1] in ("+", "-") and not HEAD.match(line)]
    left_out = len(lines) - LINES_SHOWN
    return "\n".join([*lines[:LINES_SHOWN], *([f"... {left_out} more lines"] if left_out > 0 else [])])


class CompareExperiments(Request):
    experiment_a: ExperimentId = Field(description="the one to compare with")
    experiment_b: ExperimentId = Field(description="the one that is compared", examples=["mar11-52"])


class Difference(Response):
    a: dict[str, Any]
    b: dict[str, Any]
    delta_bpb: float | None
    """b's value minus a's; for two runs of swarms that compare deltas, b's delta from its baseline minus a's."""
    delta_params_m: float | None
    delta_vram_mb: float | None
    patch_a: str | None
    patch_b: str | None
    """Each one's whole patch against the tag's base commit; null where none was sent."""
    diff: str | None
    """The change from a to b, file by file. For two runs of swarms: the constants in which their configs differ.
    Null: a patch is missing, or `diff_cut` says why."""
    diff_cut: str | None
    """Why `diff` is missing although both patches are there, or where it ends early; null: it is whole."""
    constants: str | None
    """In words, the constants that each side set over its code. Null: neither set any, both are the same in code and
    constants, or `diff` shows them."""


@function("report::diff", role="viewer", costly=True)
async def diff(request: CompareExperiments, experiments: Experiments, children: Children) -> Difference:
    """Both sides, b minus a, and the code; a discarded experiment's patch can be read for ever."""
    (a, patch_a), (b, patch_b) = await experiments.compared(request.experiment_a, request.experiment_b)
    beside = _of_swarm(a, b)
    made, by_delta = Between(), beside is not None and not (a.by_value or b.by_value)
    if patch_a is not None and patch_b is not None:
        async with children.one():
            made = await between(patch_a, patch_b, a.experiment_id, b.experiment_id)
    elif beside is not None:
        made = Between(beside)
    return Difference(
        a=_side(a),
        b=_side(b),
        delta_bpb=_minus(b.delta_bpb, a.delta_bpb) if by_delta else _minus(b.val_bpb, a.val_bpb),
        delta_params_m=_minus(b.num_params_m, a.num_params_m),
        delta_vram_mb=_minus(b.peak_vram_mb, a.peak_vram_mb),
        patch_a=text_of(patch_a),
        patch_b=text_of(patch_b),
        diff=made.diff,
        diff_cut=made.cut,
        constants=None if beside is not None else _constants(a, b, is_same_code=made.diff == ""),
    )


def _of_swarm(a: Experiment, b: Experiment) -> str | None:
    """The difference of the configs of two runs of swarms; None for other runs."""
    if a.worker_id is None or b.worker_id is None:
        return None
    return between_configs(a.config_delta or {}, b.config_delta or {}, a.experiment_id, b.experiment_id)


def _constants(a: Experiment, b: Experiment, *, is_same_code: bool) -> str | None:
    """The constants that two runs set, in words. None if there is nothing to say."""
    configs = [e.config_delta or {} for e in (a, b)]
    sets = [", ".join(line for name in sorted(config) for line in _line(config, name)) for config in configs]
    if not any(sets) or (is_same_code and sets[0] == sets[1]):
        return None
    words = [f"{e.experiment_id} sets {own or 'no constants'}" for e, own in zip((a, b), sets, strict=True)]
    return f"{'; '.join(words)}. A constant that is set holds, whatever the code says."


SIDE = {
    *("val_bpb", "delta_bpb", "config_delta", "reported", "description", "category"),
    *("num_params_m", "peak_vram_mb", "status", "commit_sha"),
}


def _side(e: Experiment) -> dict[str, Any]:
    own = e.model_dump(include=SIDE)
    return own | {"id": e.experiment_id, "score": score_of(e), "claimed": e.is_claim}


def _minus(b: float | None, a: float | None) -> float | None:
    return None if a is None or b is None else b - a


def between_configs(a: Mapping[str, object], b: Mapping[str, object], name_a: str, name_b: str) -> str:
    """Constants that differ between a and b; empty where none does. What one does not set is train.py's."""
    lines = [
        line
        for name in {**a, **b}
        if (before := _line(a, name)) != (after := _line(b, name))
        for line in (*(f"-{text}" for text in before), *(f"+{text}" for text in after))
    ]
    return "\n".join((f"--- {name_a}", f"+++ {name_b}", *lines, "")) if lines else ""


def _line(config: Mapping[str, object], name: str) -> list[str]:
    return [f"{name} = {config[name]!r}"] if name in config else []
