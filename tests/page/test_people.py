"""The five people of the README: each finds the next step on the page within two clicks of the first view."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.journeys.running import RunningLab, running_lab
from tests.page.pages import Page, measured
from tests.test_documents import PAGES, check_command


class Reader:
    """Somebody who sees the page for the first time, and clicks at most twice."""

    def __init__(self, page: Page, **address: str) -> None:
        self.page = page
        self.clicks = 0
        page.show(anew=False, **address)

    def click(self, text: str, css: str = "a, button, summary") -> None:
        self.clicks += 1
        assert self.clicks <= 2, text
        self.page.click(text, css)

    def finds(self, command: str) -> None:
        """Finds this command, which can be typed as it is."""
        self.page.until(command, "code, pre")
        check_command(command.removeprefix("./nightjar "))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which commands can be typed: their options name files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "PATH").mkdir()
    (tmp_path / "train.py").touch()


def test_an_agent_finds_the_text_and_the_command_that_it_begins_with(
    page: Page, lab: RunningLab, tag: str
) -> None:
    measured(lab, tag, 3.0)
    agent = Reader(page, tag=tag)

    agent.click("Agents")
    agent.finds(f"./nightjar agent --tag {tag} -- claude -p")
    agent.click("program.md")

    page.until("You are an autonomous researcher.", "body")
    assert f"on the tag `{tag}`" in page.texts("body")[0], "it is made out to the tag"
    assert f"answers at `http://127.0.0.1:{lab.port}`" in page.texts("body")[0]


def test_an_operator_finds_the_command_that_signs_in_then_a_control_of_a_run(
    page: Page, lab: RunningLab, tag: str
) -> None:
    measured(lab, tag, 3.0)
    Reader(page, tag=tag).finds("./nightjar open")
    page.sign_in()
    operator = Reader(page, tag=tag)
    page.until("Pause", "#view .acts button")

    operator.click("Runs", "#tabs a")
    operator.click("1", "#view td a")

    page.until("Retest", "#view .acts button")
    page.until("Retract", "#view .acts button")


def test_an_organiser_finds_the_invitations_and_a_limit(page: Page, lab: RunningLab, tag: str) -> None:
    page.sign_in()
    Reader(page, tag=tag).click("Agents")
    Reader(page, tag=tag, view="agents").finds(f"./nightjar token issue NAME --role agent --tag {tag}")
    Reader(page, tag=tag).click("GPUs")
    Reader(page, view="gpus").finds("./nightjar token issue NAME --role worker --enroll")
    organiser = Reader(page, tag=tag)

    organiser.click("Functions")
    page.until("function", ".note")
    page.run("document.querySelector('#view .scroll').scrollTop = 1e6")
    organiser.click("tag::budget", "#view td a")

    page.until("gpu_seconds", "#details form.call")


def test_a_worker_owner_finds_the_command_that_joins_by_url(page: Page, lab: RunningLab, tag: str) -> None:
    owner = Reader(page, tag=tag)

    owner.click("GPUs")

    owner.finds(f"./nightjar worker --url http://127.0.0.1:{lab.port} --token TOKEN --repo PATH")


def test_an_extender_finds_a_function_to_copy(page: Page, lab: RunningLab, tag: str) -> None:
    extender = Reader(page, tag=tag)

    extender.click("Functions")
    extender.click("Add yours")

    documented = re.findall(r"^```python\n(.*?)^```", PAGES["functions-of-your-own"], re.M | re.S)[0]
    page.settles(lambda: [text.strip() for text in page.texts(".own pre")], [documented.strip()])
    page.until("./nightjar up --functions mine", ".own code")
    assert page.said() == []


def test_everybody_finds_the_next_step_in_an_empty_lab(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running_lab(tmp_path_factory.mktemp("nobody")) as empty:
        empty.start()
        page = Page(browser, empty)
        anybody = Reader(page)
        for command in page.texts("#empty pre, #empty code"):
            anybody.finds(command)
        anybody.click("program.md")
        page.until("You are an autonomous researcher.", "body")
