"""report::diff: git's diff of two patches, bounded in time and length, and free of anybody's configuration."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from functions.kernel import off_loop
from functions.people import diffs
from functions.people.diffs import Between, between, between_configs
from state.errors import Unavailable
from tests.labs import curl, open_tag, registered, told, tried

PATCH = "diff --git a/train.py b/train.py\nindex 111..222 100644\n@@ -{at},3 +{at},4 @@ def f():\n x\n+LR = {lr}\n"


@pytest.fixture(autouse=True)
def _git_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit of time on a busy machine."""
    monkeypatch.setattr(diffs, "DIFF_S", 600.0)


def patch(lr: float, at: int = 10) -> bytes:
    return PATCH.format(at=at, lr=lr).encode()


def shuffled(seed: int, *, lines: int = 150, size: int = 1_000_000) -> str:
    """A patch of about this size out of few lines: what a diff finds no way through."""
    drawn = random.Random(seed)
    choice = [f"+{n:06d}\n" for n in range(lines)]
    return "".join(drawn.choices(choice, k=size // 8))


async def compared(http: httpx.AsyncClient, patches: Sequence[str]) -> httpx.Response:
    await open_tag(http)
    for nth, text in enumerate(patches):
        await tried(http, 1.0 - nth / 100, diff=text)
    return await curl(http, "/api/report/diff", {"experiment_a": "mar11-1", "experiment_b": "mar11-2"})


LOW = {"LR": 0.01}
WIDER = {"WIDTH": 64, "LR": 0.02}
HOLDS = "A constant that is set holds, whatever the code says."


@pytest.mark.parametrize(
    ("codes", "configs", "words"),
    [
        (("", ""), (LOW, WIDER), "mar11-1 sets LR = 0.01; mar11-2 sets LR = 0.02, WIDTH = 64. "),
        (("", ""), (None, LOW), "mar11-1 sets no constants; mar11-2 sets LR = 0.01. "),
        (("", ""), ({"N": 1}, {"N": 1.0}), "mar11-1 sets N = 1; mar11-2 sets N = 1.0. "),
        (("+LR = 1e-4\n", ""), ({}, LOW), "mar11-1 sets no constants; mar11-2 sets LR = 0.01. "),
        (("+LR = 1e-4\n", ""), (LOW, LOW), "mar11-1 sets LR = 0.01; mar11-2 sets LR = 0.01. "),
        (("", ""), (LOW, LOW), None),
        (("+LR = 1e-4\n", ""), (None, None), None),
    ],
)
async def test_constants_that_runs_set_over_their_code_are_told_in_words(
    client: httpx.AsyncClient,
    codes: tuple[str, str],
    configs: tuple[dict[str, object] | None, dict[str, object] | None],
    words: str | None,
) -> None:
    await open_tag(client)
    for code, config in zip(codes, configs, strict=True):
        await registered(client, diff=code, config_delta=config)
    answer = await told(client, "/api/report/diff", experiment_a="mar11-1", experiment_b="mar11-2")
    assert answer["constants"] == (words and f"{words}{HOLDS}")
    assert (answer["diff"] == "") == (codes[0] == codes[1])


def of_file(name: str, *lines: str) -> str:
    head = f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1,9 +1,9 @@\n"
    return head + "".join(f"{line}\n" for line in lines)


LR = ("-LR = 0.1", "+LR = 0.2")


@pytest.mark.parametrize(
    ("one", "two", "change"),
    [
        (of_file("a.py", *LR), of_file("a.py", "-LR = 0.1", "+LR = 0.3"), ["-LR = 0.2", "+LR = 0.3"]),
        (of_file("a.py", *LR), of_file("a.py", " LR = 0.1", "+B = 2"), ["-LR = 0.2", "+LR = 0.1", "+B = 2"]),
        (of_file("a.py", " x", "+y"), of_file("a.py", "-x", "+y"), ["-x", " y"]),
        (of_file("a.py", *LR), of_file("b.py", *LR), ["+LR = 0.1", "-LR = 0.2", *LR]),
        (of_file("a.py", *LR), "", ["+LR = 0.1", "-LR = 0.2"]),
        ("", of_file("a.py", *LR), [*LR]),
    ],
    ids=["another value", "undone", "removed", "another file", "all undone", "from the base"],
)
async def test_the_change_of_two_codes_is_no_diff_of_patches(one: str, two: str, change: list[str]) -> None:
    found = await between(one.encode(), two.encode(), "a", "b")
    assert found.diff is not None
    lines = [line for line in found.diff.splitlines()[2:] if not line.startswith("diff --git ")]
    assert sorted(lines) == sorted(change)


async def test_a_diff_over_its_deadline_is_left_out_and_says_so(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffs, "DIFF_S", 0.0)
    answer = (await compared(client, ["+A = 1\n", "+A = 2\n"])).json()
    assert answer["diff"] is None
    assert "took more than 0 s" in answer["diff_cut"]
    assert (answer["patch_a"], answer["patch_b"]) == ("+A = 1\n", "+A = 2\n")


async def test_a_diff_that_is_too_long_ends_with_a_whole_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffs, "LONGEST_DIFF", 100_000)

    await between(patch(0.1), patch(0.2), "a", "b")  # the first child of an event loop opens what stays open
    open_before = len(os.listdir("/dev/fd"))
    one, two = (shuffled(seed, size=250_000).encode() for seed in (1, 2))
    made = [await between(one, two, "a", "b") for _ in range(3)]
    found = made[-1]

    assert len(os.listdir("/dev/fd")) == open_before
    assert found.diff is not None
    assert 80_000 < len(found.diff) <= 100_000
    assert found.diff.endswith("\n")
    assert found.cut is not None
    assert "only its first" in found.cut


async def test_who_waits_too_long_is_told_a_time(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await compared(client, ["+A = 1\n", "+A = 2\n"])
    may_end = asyncio.Event()

    async def slow(*patches: object) -> Between:
        await may_end.wait()
        return Between("")

    monkeypatch.setattr("functions.people.diffs.between", slow)
    monkeypatch.setattr(off_loop, "PATIENCE_S", 0.0)
    pair = {"experiment_a": "mar11-1", "experiment_b": "mar11-2"}
    calls = [asyncio.create_task(curl(client, "/api/report/diff", pair)) for _ in range(off_loop.MOST + 1)]

    (over,), others = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    may_end.set()

    assert (over.result().status_code, over.result().json()["retry_after"]) == (503, 5.0)
    assert {answer.status_code for answer in await asyncio.gather(*others)} == {200}


@pytest.fixture(autouse=True)
def _many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("functions.kernel.invoke.COSTLY_EACH", 100)


async def test_a_git_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for end in ("exit 3", "kill -9 $$"):
        (tmp_path / "git").write_text(f"#!/bin/sh\n{end}\n")
        (tmp_path / "git").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(Unavailable, match=r"git diff ended with (3|-9)"):
            await between(patch(0.1), patch(0.2), "a", "b")


async def test_no_configuration_of_git_is_heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    config = f'[diff]\n\texternal = "touch {ran};"\n[diff "own"]\n\ttextconv = "touch {ran};"\n'
    (tmp_path / ".git" / "objects").mkdir(parents=True)
    (tmp_path / ".git" / "refs").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "config").write_text(config)
    (tmp_path / ".gitconfig").write_text(config)
    (tmp_path / ".gitattributes").write_text("* diff=own\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {ran};")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "diff.external")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", f"touch {ran};")

    found = await between(patch(0.1), patch(0.2), "a", "b")

    assert found.diff is not None
    assert "+LR = 0.2" in found.diff
    assert not ran.exists()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("nightjar-diff-")]


@pytest.mark.parametrize(
    ("a", "b", "lines"),
    [
        ({"LR": 0.0003, "DEPTH": 4}, {"LR": 1e-05, "DEPTH": 4}, ["-LR = 0.0003", "+LR = 1e-05"]),
        ({"LR": 0.1}, {"LR": 0.1}, []),
        ({"LR": 0.1}, {"DEPTH": 4}, ["-LR = 0.1", "+DEPTH = 4"]),  # the script sets the other one
        ({"N": 1}, {"N": 1.0}, ["-N = 1", "+N = 1.0"]),
    ],
)
def test_differing_constants_are_shown(a: dict[str, object], b: dict[str, object], lines: list[str]) -> None:
    head = ["--- s-1", "+++ s-2"] if lines else []
    assert between_configs(a, b, "s-1", "s-2").splitlines() == [*head, *lines]
