"""Clients that three generators make from /openapi.json have every operation, and call a running lab.

The generators have an environment of their own, made from requirements-clients.txt.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import trusting_others
from tests.journeys.running import RunningLab, running_lab
from tests.test_launcher import CHECKOUT, launcher

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parents[1] / "data" / "clients"
PICTURES = (
    "content_type_overrides: {image/png: application/octet-stream, image/svg+xml: application/octet-stream}"
)
"""openapi-python-client knows no pictures, but bytes."""


class Workshop:
    """Where clients are generated and run. Each is a package `lab_client` in a folder of its own."""

    def __init__(self, folder: Path, lab: RunningLab) -> None:
        self._folder = folder
        self._lab = lab
        self._programs = folder / "venv" / "bin"
        with (folder / "lock").open("wb") as lock, trusting_others():
            venv, requirements = folder / "venv", CHECKOUT / "requirements-clients.txt"
            launcher.make(venv, requirements, lock, launcher.Progress("setting up an environment"))
        self._token: str = lab.post("token/issue", name="me", role="operator")["token"]
        self.document = folder / "openapi.json"
        self.document.write_bytes(lab.http.get("/openapi.json").content)

    def operations(self) -> dict[str, str]:
        """Every operationId with its operation as text."""
        paths = json.loads(self.document.read_bytes())["paths"]
        return {of["operationId"]: json.dumps(of) for methods in paths.values() for of in methods.values()}

    def generate(self, program: str, *arguments: str) -> Path:
        """Run a generator in a new folder; answers the folder."""
        folder = self._folder / program
        folder.mkdir()
        self._run(folder, [str(self._programs / program), *arguments])
        return folder

    def call(self, folder: Path, script: str, tag: str) -> dict[str, Any]:
        """Run a script with the client in a folder; answers what it prints."""
        to = (f"http://127.0.0.1:{self._lab.port}", self._token, tag)
        told: dict[str, Any] = json.loads(
            self._run(folder, [str(self._programs / "python"), str(SCRIPTS / script), *to])
        )
        return told

    def _run(self, folder: Path, command: Sequence[str]) -> str:
        done = subprocess.run(
            command,
            cwd=folder,
            env={"PATH": f"{self._programs}:/usr/bin:/bin", "PYTHONPATH": str(folder), "HOME": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        lab.start()
        yield Workshop(tmp_path_factory.mktemp("clients"), lab)


def answers(tag: str) -> dict[str, Any]:
    """What each client is told by the same calls."""
    return {
        "refused": 404,
        "branch": f"autoresearch/{tag}",
        "target": 0.9,
        "number": 1,
        "improved": True,
        "statuses": ["keep"],
        "best": 0.9979,
    }


def test_openapi_python_client_makes_every_operation_and_its_client_calls_the_lab(workshop: Workshop) -> None:
    settings = workshop.document.with_name("settings.yml")
    settings.write_text(PICTURES)
    read = ("--path", str(workshop.document), "--config", str(settings), "--fail-on-warning")

    made = workshop.generate(
        "openapi-python-client", "generate", *read, "--meta", "none", "--output-path", "lab_client"
    )

    modules = {file.stem for file in made.glob("lab_client/api/*/*.py")} - {"__init__"}
    assert modules == set(workshop.operations())
    assert workshop.call(made, "with_openapi_python_client.py", "one") == answers("one")


def test_datamodel_codegen_makes_the_models_of_every_operation_and_they_talk_to_the_lab(
    workshop: Workshop,
) -> None:
    read = ("--input", str(workshop.document), "--input-file-type", "openapi")

    made = workshop.generate(
        "datamodel-codegen",
        *read,
        *("--output-model-type", "pydantic_v2.BaseModel", "--output", "lab_client.py"),
    )

    body = ast.parse((made / "lab_client.py").read_text()).body
    models = {part.name for part in body if isinstance(part, ast.ClassDef)}
    for name, operation in workshop.operations().items():
        assert set(re.findall(r"#/components/schemas/(\w+)", operation)) <= models, name
    assert workshop.call(made, "with_datamodel_codegen.py", "two") == answers("two")


def test_openapi_generator_makes_every_operation_and_its_client_calls_the_lab(workshop: Workshop) -> None:
    read = ("--input-spec", str(workshop.document), "--generator-name", "python")

    made = workshop.generate(
        "openapi-generator-cli", "generate", *read, "--package-name", "lab_client", "--output", "."
    )

    sources = "".join(file.read_text() for file in made.glob("lab_client/api/*.py"))
    methods = re.findall(r"^    def ([a-z]\w*)_with_http_info\(", sources, flags=re.MULTILINE)
    # it writes pool_list_2 as pool_list2
    assert sorted(methods) == sorted(re.sub(r"_(\d)", r"\1", name) for name in workshop.operations())
    assert workshop.call(made, "with_openapi_generator.py", "three") == answers("three")
