"""The error of a run that misses a file says how the worker's owner lets runs have it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from functions.formats.metrics_block import deciding_line, remedies_in
from tests.workers.attempt.test_beside_commit import READS, ignored, pointer
from tests.workers.attempt.test_runner import train
from tests.workers.repository import Repository
from tests.workers.tiers import needs
from workers.attempt.isolation import Tier
from workers.attempt.job import FailedTraining

pytestmark = pytest.mark.process


@pytest.fixture
def tier() -> Tier:
    return needs("landlock")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home, which is the run's too."""
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    return found


async def error_of(repo: Repository, script: str, **options: Any) -> str:
    pace = {"data": repo.path.parent / "lab", **options.pop("pace", {})}
    result = await train(repo, script, environ=os.environ.copy(), pace=pace, **options)
    assert isinstance(result, FailedTraining), result
    return result.error


LINK = "if runs read it, start `up` or the worker with --link data"
MAKE = "runs have no folder out: the script makes it by os.makedirs('out', exist_ok=True)"


@pytest.mark.parametrize(
    ("script", "remedy"),
    [
        (READS, LINK),
        ("import os\nopen(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'data/train.bin'))", LINK),
        ("raise RuntimeError('data/train.bin not found')", LINK),
        ("import os\nos.mkdir('sub')\nos.chdir('sub')\nopen('../data/train.bin')", LINK),
        ("raise RuntimeError('Dataset not found. You can use download=True')\nROOT = './data'", LINK),
        ("from pathlib import Path\nnext(Path('data').glob('*.bin'))", LINK),
        ("ROOT = 'data'\nraise RuntimeError('Found 0 files in subfolders of its root')", LINK),
        ("open('out/new.txt', 'w')", MAKE),
        (
            "def to_csv(_):\n    raise OSError(\"Cannot save into a non-existent directory: 'out'\")\n\nto_csv(1)",
            MAKE,
        ),
        ("import helper", "helper.py is in the project's folder, but in no commit: commit it"),
        ("import package.inner", "package is in the project's folder, but in no commit: if runs read it"),
        (
            "open('../datasets/x.bin')",
            "../datasets/x.bin leads out of the project, to {above}/datasets/x.bin: name it",
        ),
        ("open('linked/x.bin')", "linked/x.bin leads out of the project, to {above}/datasets/x.bin: name it"),
    ],
)
async def test_a_file_of_the_project_that_runs_lack_is_named_with_its_remedy(
    repo: Repository, tmp_path: Path, script: str, remedy: str
) -> None:
    for path in ("data/train.bin", "out/log.txt", "helper.py", "package/__init__.py"):
        ignored(repo, path)
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "x.bin").touch()
    (repo.path / "linked").symlink_to("../datasets")

    error = await error_of(repo, script)

    [found] = remedies_in(error)
    assert remedy.replace("{above}", str(tmp_path)) in found, error


async def test_a_run_that_writes_into_linked_data_is_told_that_it_may_not(
    repo: Repository, tier: Tier
) -> None:
    ignored(repo)

    for name in ("train.bin", "new.bin"):
        error = await error_of(repo, f"open('data/{name}', 'w')", tier=tier, links=["data"])
        told = f"runs read data/{name} where the project has it, and may not write there"
        assert remedies_in(error) == [told]


@pytest.mark.parametrize(
    ("place", "opened"),
    [
        (".cache/huggingface/hub/models--x/config.json", ".cache/huggingface/hub"),
        ("my data/x.bin", "'my data'"),
    ],
)
async def test_data_elsewhere_that_its_user_could_read_is_named_with_the_option_that_opens_it(
    repo: Repository, tier: Tier, home: Path, place: str, opened: str
) -> None:
    data = home / place
    data.parent.mkdir(parents=True)
    data.write_text("planted")
    wanted = f"--data-dir {home}/{opened}".replace(f"{home}/'", f"'{home}/")

    error = await error_of(repo, f"import os\nopen(os.path.expanduser('~/{place}'))", tier=tier)

    assert remedies_in(error) == [f"runs may not read {data} here: start `up` or the worker with {wanted}"], (
        error
    )
    assert deciding_line(error, "other").startswith(("PermissionError", "FileNotFoundError"))


async def test_linked_data_that_leads_elsewhere_is_named_with_its_real_folder(
    repo: Repository, tier: Tier, home: Path
) -> None:
    (home / "big").mkdir()
    (home / "big" / "x.bin").touch()
    ignored(repo)
    (repo.path / "data" / "x.bin").symlink_to(home / "big" / "x.bin")

    error = await error_of(repo, "open('data/x.bin')", tier=tier, links=("data",))

    assert remedies_in(error)[0].endswith(f"--data-dir {home}/big")


@pytest.mark.parametrize("place", [".ssh/id", ".cache/x"])
async def test_a_script_cannot_have_a_home_or_its_secrets_offered(
    repo: Repository, tier: Tier, home: Path, place: str
) -> None:
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    (home / place).write_text("planted")

    error = await error_of(repo, f"open({str(home / place)!r})", tier=tier)

    [remedy] = remedies_in(error)
    assert "--data-dir FOLDER" in remedy


async def test_the_lab_s_own_files_are_not_offered(repo: Repository, tier: Tier) -> None:
    log = repo.path.parent / "lab" / "logs" / "web.log"
    log.parent.mkdir(parents=True)
    log.touch()

    error = await error_of(repo, f"open({str(log)!r})", tier=tier)

    assert "--data-dir FOLDER" in remedies_in(error)[0]


async def test_a_run_that_finds_no_network_is_told_of_the_option(repo: Repository, tier: Tier) -> None:
    script = "raise OSError(\"We couldn't connect to 'https://x.invalid' to load the files\")"

    [remedy] = remedies_in(await error_of(repo, script, tier=tier))

    assert remedy.endswith("start `up` or the worker with --network on")
    assert remedies_in(await error_of(repo, script)) == []


async def test_a_script_s_own_words_are_no_remedy(repo: Repository) -> None:
    error = await error_of(repo, "print('-> start it with --isolation none'); raise SystemExit(1)")

    assert "--isolation none" in error
    assert remedies_in(error) == []


async def test_a_path_of_a_commit_is_no_remedy(repo: Repository) -> None:
    path = "w\n-> start it with --isolation none\n.pt"
    repo.commit({".gitattributes": "w* filter=lfs\n", path: pointer(b"weights")})

    error = await error_of(repo, "")

    assert "Git LFS has not fetched w" in error
    assert remedies_in(error) == []
