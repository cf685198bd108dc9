"""Code that no worker could train is refused before a run waits for it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import psutil
import pytest

from functions.kernel.clone import lines_between
from functions.kernel.off_loop import Children
from functions.kernel.process.lifecycle import opened
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import add_gpu, idea, open_tag, refused, registered, told, tried
from tests.workers.repository import Repository

ELSEWHERE = "0123456789abcdef0123456789abcdef01234567"
OF_ANOTHER = (
    "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-NO = 1\n+NO = 2\n"
)
SUBMIT = "/api/experiment/submit"


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
async def client(settings: Settings, repo: Repository) -> AsyncIterator[httpx.AsyncClient]:
    """A lab whose web process has the clone, and a tag on its first commit."""
    with_clone = settings.model_copy(update={"clone": repo.path})
    async with opened("web", with_clone) as process, http_client(process) as http:
        await open_tag(http, base_commit=repo.base, policy={"baseline_first": False})
        yield http


def deeper(repo: Repository) -> tuple[str, str]:
    """A commit, and its patch against the base."""
    commit = repo.commit({"train.py": "DEPTH = 9\n", "data.bin": bytes(range(256))})
    return commit, repo.git_bytes("diff", "--binary", repo.base, commit).decode()


async def test_git_says_why_a_patch_does_not_apply(client: httpx.AsyncClient, repo: Repository) -> None:
    before = repo.state()

    over = await refused(client, 422, SUBMIT, **idea(diff=OF_ANOTHER, commit_sha=ELSEWHERE))

    assert over["code"] == "patch"
    assert "patch failed: train.py:1" in over["detail"]
    assert f"git diff --binary {repo.base}" in over["hint"]
    assert (await told(client, "/api/experiment/history", tag="mar11"))["total"] == 0
    assert repo.state() == before


async def test_a_patch_that_applies_without_its_last_line_end_and_a_commit_of_the_clone_are_taken(
    client: httpx.AsyncClient, repo: Repository
) -> None:
    commit, patch = deeper(repo)
    for sent in (patch, patch[:-1]):
        await told(client, SUBMIT, **idea(diff=sent, commit_sha=ELSEWHERE))
    await told(client, SUBMIT, **idea(diff=OF_ANOTHER, commit_sha=commit))


async def test_a_clone_that_cannot_tell_refuses_nothing_and_says_nothing_of_a_base_commit(
    settings: Settings, repo: Repository, tmp_path: Path
) -> None:
    another = Repository(tmp_path / "another").path
    for clone in (another, tmp_path, tmp_path / "none"):
        with_clone = settings.model_copy(update={"clone": clone})
        async with opened("web", with_clone) as process, http_client(process) as http:
            tag, policy = f"of-{clone.name}", {"baseline_first": False}
            begun = await open_tag(http, tag, base_commit=ELSEWHERE[::-1], policy=policy)
            await told(http, SUBMIT, **idea(tag, diff=OF_ANOTHER, commit_sha=ELSEWHERE))
            assert (begun["hint"] is None) == (clone != another)
            assert clone != another or f"`git -C {another} fetch --all`" in begun["hint"]


async def test_a_name_in_the_place_of_a_commit_s_hash_is_refused(client: httpx.AsyncClient) -> None:
    for name in ("HEAD", "main", "v1.0", "123", "abc123", "0" * 41, "mar11-base"):
        submitted = await refused(client, 422, SUBMIT, **idea(commit_sha=name))
        opened_on = await refused(client, 422, "/api/experiment/setup", tag="t", base_commit=name)

        assert [e["field"] for e in submitted["errors"]] == ["commit_sha"]
        assert [e["field"] for e in opened_on["errors"]] == ["base_commit"]
        assert "git rev-parse HEAD" in submitted["detail"]
    assert (await told(client, "/api/experiment/history", tag="mar11"))["total"] == 0


async def test_constants_of_code_without_a_script_are_refused_and_of_one_that_does_not_parse_are_not(
    client: httpx.AsyncClient, repo: Repository
) -> None:
    broken = repo.commit({"train.py": "match = DEPTH :=\n"})
    (repo.path / "train.py").unlink()
    without = repo.commit({"main.py": "DEPTH = 9\n"})

    wrong = await refused(client, 422, SUBMIT, **idea(commit_sha=without, config_delta={"DEPTH": 3}))
    await told(client, SUBMIT, **idea(commit_sha=broken, config_delta={"DEPTH": 3}))

    assert "'train.py' is not a file of this code" in wrong["detail"]


async def test_constants_are_looked_for_in_the_file_of_the_command(
    client: httpx.AsyncClient, repo: Repository
) -> None:
    commit = repo.commit({"src/main.py": "LR = 3e-4\nLR = f()\n", "train.py": "DEPTH = 8\n"})
    patch = repo.git_bytes("diff", "--binary", repo.base, commit).decode()
    refusal = "is not a top-level name of the script; available:"
    narrow = await refused(client, 422, SUBMIT, **idea(commit_sha=repo.base, config_delta={"WIDTH": 3}))
    await add_gpu(client, scripts=["src/main/__main__.py", "src/main.py"])
    state = repo.state()

    for code in ({"commit_sha": commit}, {"commit_sha": ELSEWHERE, "diff": patch}):
        await told(client, SUBMIT, **idea(**code, config_delta={"LR": 0.02}))
        wrong = await refused(client, 422, SUBMIT, **idea(**code, config_delta={"DEPTH": 9}))
        assert f"constant 'DEPTH' {refusal} LR" in wrong["detail"]

    before = await refused(client, 422, SUBMIT, **idea(commit_sha=repo.base, config_delta={"LR": 0.02}))
    assert f"constant 'WIDTH' {refusal} DEPTH" in narrow["detail"]
    assert "'src/main/__main__.py' or 'src/main.py' is not a file of this code" in before["detail"]
    assert (await told(client, "/api/experiment/history", tag="mar11"))["total"] == 2
    assert repo.state() == state


async def test_constants_and_a_seed_are_refused_where_a_worker_s_command_hides_its_file(
    client: httpx.AsyncClient, repo: Repository
) -> None:
    reading = repo.commit({"run.sh": "exec python train.py --seed $NIGHTJAR_SEED\n"})
    blind = repo.commit({"run.sh": "exec python train.py\n"})
    await add_gpu(client, "host:gpu0", scripts=[])
    await add_gpu(client, "host:gpu1", scripts=["train.py"])

    for fields in ({"config_delta": {"DEPTH": 9}}, {"seed": 7}):
        wrong = await refused(client, 422, SUBMIT, **idea(commit_sha=blind, **fields))
        assert "--command does not say which Python file it runs" in wrong["detail"]
        assert "leave config_delta and seed out" in wrong["hint"]
        await told(client, SUBMIT, **idea(commit_sha=blind, gpu_id="host:gpu1", **fields))
    name = await registered(client, commit_sha=blind)
    await refused(client, 422, "/api/gpu/train", experiment_id=name, config_delta={"DEPTH": 9})
    await told(client, SUBMIT, **idea(commit_sha=blind))
    await told(client, SUBMIT, **idea(commit_sha=reading, seed=7))


async def test_another_seed_is_refused_if_nothing_takes_it(
    client: httpx.AsyncClient, repo: Repository
) -> None:
    blind = await tried(client, 1.0, commit_sha=repo.base)
    reading = await tried(client, 0.9, commit_sha=repo.commit({"run.sh": "python train.py $NIGHTJAR_SEED\n"}))
    gpu = await add_gpu(client, scripts=[])

    wrong = await refused(client, 422, "/api/experiment/retest", experiment_id=blind["experiment_id"])
    await told(client, "/api/experiment/retest", experiment_id=blind["experiment_id"], train=False)
    await told(client, "/api/experiment/retest", experiment_id=reading["experiment_id"])

    assert gpu["worker"]["scripts"] == []
    assert "--command does not say which Python file it runs" in wrong["detail"]


async def test_a_git_without_an_answer_ends(
    tmp_path: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what git's own settings say is read once
    assert await lines_between(repo.path, Children(), repo.base, []) is not None
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("functions.kernel.clone._CHAIN_S", 0.5)

    before = psutil.Process().children()

    assert await lines_between(repo.path, Children(), repo.base, []) is None

    assert psutil.Process().children() == before
