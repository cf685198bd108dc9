"""`nightjar join` finds the directory of the worker that is meant, or makes one."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from functions.kernel.process.remote import JoinedSwarm
from triggers.cli.worker import joining_worker

URL, OTHER = "https://swarm.example:8000", "https://other.example"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers of this user are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("NIGHTJAR_DATA", raising=False)
    return tmp_path / "nightjar" / "swarm"


def kept_in(place: Path) -> tuple[str, str]:
    joined = JoinedSwarm.model_validate_json((place / "joined.json").read_text())
    return joined.url, joined.name


def test_a_new_worker_gets_a_directory_of_its_own(places: Path) -> None:
    place = joining_worker(f"{URL}/", "ann-4090", None).data_dir

    assert place == places / "swarm.example-8000" / "ann-4090"
    assert kept_in(place) == (URL, "ann-4090")


def test_a_worker_without_a_name_is_given_one_that_stays(places: Path) -> None:
    first = joining_worker(URL, None, None).data_dir

    assert joining_worker(None, None, None).data_dir == first
    assert joining_worker(URL, None, None).data_dir == first
    assert kept_in(first) == (URL, first.name)


def test_one_of_several_workers_has_to_be_named(places: Path) -> None:
    first, second = (joining_worker(url, "w", None).data_dir for url in (URL, OTHER))
    third = joining_worker(URL, "v", None).data_dir

    with pytest.raises(click.UsageError, match=r"several workers .*v \(swarm.example-8000\).*--worker-id"):
        joining_worker(None, None, None)
    with pytest.raises(click.UsageError, match="several workers"):
        joining_worker(None, "w", None)

    with pytest.raises(click.UsageError, match="no worker 'x' has joined from here; these have: v, w, w"):
        joining_worker(None, "x", None)

    assert joining_worker(None, "v", None).data_dir == third
    assert joining_worker(OTHER, None, None).data_dir == second
    assert joining_worker(URL, "w", None).data_dir == first


def test_a_named_directory_is_one_worker_s(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    with pytest.raises(click.UsageError, match="no worker has joined a swarm from"):
        joining_worker(None, None, place)

    joining_worker(URL, "w", place)

    assert joining_worker(None, None, place).data_dir == place
    with pytest.raises(click.UsageError, match="w, and no other worker, has joined"):
        joining_worker(None, "v", place)
    joining_worker(OTHER, "v", place)
    assert kept_in(place) == (OTHER, "v")


@pytest.mark.parametrize(
    ("url", "worker_id", "said"),
    [
        *((URL, name, "--worker-id") for name in ("", "a/b", "../x", "a b", "é", "x" * 97)),
        *((url, "w", "is not a URL") for url in ("swarm.example", "ftp://swarm.example", "https://")),
        (None, None, "no worker has joined a swarm from here yet"),
    ],
)
def test_what_names_no_worker_is_refused(url: str | None, worker_id: str | None, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        joining_worker(url, worker_id, None)


def test_the_directory_of_a_lab_is_refused(tmp_path: Path) -> None:
    (tmp_path / "redis.json").write_text("{}")

    with pytest.raises(click.UsageError, match="is the data directory of a lab"):
        joining_worker(URL, "w", tmp_path)
