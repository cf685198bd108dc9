"""A chain of keeps is distilled by a real lab whose processes are killed meanwhile, and its branches are taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import printed
from tests.journeys.running import RunningLab, git, running_lab

GAP = "#\n" * 9
SCRIPT = f"""import random
A = 0
{GAP}B = 0
{GAP}C = 0
{GAP}value = 3.0 - A - 0.5 * B * (1 - C) - C + random.SystemRandom().gauss(0, 0.0001)
print(f"---\\nval_bpb: {{value}}")
"""
"""C makes B idle. The noise is no matter of seeds."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path) as found:
        found.start()
        found.base = found.commit({"train.py": SCRIPT})
        found.setup(**{"guards.check": "python -m py_compile train.py"})
        yield found


def test_a_chain_is_distilled_across_kills_and_its_branches_apply_to_the_base(lab: RunningLab) -> None:
    script = SCRIPT
    for name in "ABC":
        script = script.replace(f"{name} = 0\n", f"{name} = 1\n")
        commit = lab.commit({"train.py": script})
        patch = git(lab.repo, "diff", "--binary", lab.base, commit) + "\n"
        lab.until_status(lab.submit(commit_sha=commit, diff=patch, description=f"set {name}"), "keep")
    git(lab.repo, "switch", "--quiet", "--create", "mine", lab.base)

    said = printed(lab.data, "distil", "t")
    assert "t: 3 changes up to t-3, at most 11 runs of" in said
    lab.post("trust/distil", tag="t", begin=True)
    lab.until(lambda: lab.get("experiment/t-distil1-1.3")["experiment"]["val_bpb"], "the reference has run")
    for victim in ("triggers.events", "triggers.web"):
        lab.process(victim).kill()  # `up` starts it again
    lab.until(lambda: lab.get("experiment/t-distil1-2"), "it goes on")
    lab.process("triggers.events").kill()

    said = printed(lab.data, "distil", "t")

    assert "dropped   t-2 set B, 2 lines" in said
    assert "2 of 3 changes, 4 of 6 lines" in said
    assert "2 independent changes" in said
    assert "| t-2 | `set B` | 2 |" in printed(lab.data, "report", "t")
    printed(lab.data, "take", "--distilled", "t", "--repo", str(lab.repo))
    for branch, names in (("", "AC"), ("-1", "A"), ("-2", "C")):
        code = git(lab.repo, "show", f"nightjar/t-distilled{branch}:train.py")
        assert [name for name in "ABC" if f"{name} = 1" in code] == list(names)
        assert git(lab.repo, "rev-parse", f"nightjar/t-distilled{branch}^") == lab.base
