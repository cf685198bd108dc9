"""The view that shows two to five runs side by side."""

from __future__ import annotations

from tests.journeys.running import RunningLab
from tests.page.pages import BASE_PATCH, Page, measured, registered


def table(page: Page) -> dict[str, list[str]]:
    """The values of each line by its name; ≠ is part of the name."""
    found: dict[str, list[str]] = page.run(
        "return Object.fromEntries([...document.querySelectorAll('#view tbody tr')]"
        ".map(({ cells: [name, ...values] }) => [name.innerText, values.map((e) => e.innerText.trim())]))"
    )
    return found


def colour(page: Page, line: str) -> str:
    """The colour of a line's name."""
    found: str = page.run(
        "const names = [...document.querySelectorAll('#view tbody th')];"
        "return getComputedStyle(names.find((name) => name.innerText === arguments[0])).color",
        line,
    )
    return found


def test_values_stand_side_by_side_and_differences_are_marked(page: Page, lab: RunningLab, tag: str) -> None:
    one, other = registered(lab, tag, agent="ada"), registered(lab, tag, agent="ada", diff_summary="e")

    page.show(tag=tag, view="compare", ids=f"{one},{other}")
    page.settles(lambda: table(page).get("verdict"), ["registered", "registered"])
    for name, value in ((one, 3.0), (other, 2.5)):
        lab.post("experiment/complete", experiment_id=name, val_bpb=value)

    page.settles(lambda: table(page).get("≠ val_bpb"), ["3.000000", "2.500000"])
    page.settles(lambda: table(page).get("≠ verdict"), ["first", "keep"])
    page.settles(lambda: table(page).get("≠ trust"), ["first", ""])
    page.settles(lambda: table(page).get("≠ what changed"), ["d", "e"])
    page.settles(lambda: table(page).get("agent"), ["ada", "ada"])
    assert colour(page, "≠ val_bpb") != colour(page, "agent")
    page.click("only differences")
    page.browser.until(lambda: "agent" not in table(page), "what is equal is left out")
    assert page.address()["only"] == "differences"
    assert page.said() == []


def test_constants_and_curves_of_runs_of_two_tags(page: Page, lab: RunningLab, tag: str) -> None:
    lab.setup(f"{tag}b")
    one = lab.submit(tag, config_delta={"VALUE": 3.0, "SECONDS": 0.3})
    other = lab.submit(f"{tag}b", config_delta={"VALUE": 2.0, "SECONDS": 0.3})
    for name in (one, other):
        lab.until_status(name, "keep")

    page.show(tag=tag, view="compare", ids=f"{one},{other}")

    page.settles(lambda: table(page).get("≠ VALUE"), ["3", "2"])
    page.settles(lambda: table(page).get("SECONDS"), ["0.3", "0.3"])
    page.browser.until(lambda: page.texts("#view .plot canvas"), "the curves")
    label = "return document.querySelector('#view .plot').ariaLabel"
    page.settles(lambda: page.run(label), f"reports of {one}, {other}")
    page.click(other, "#view thead a")
    page.settles(page.address, {"tag": f"{tag}b", "run": other})
    assert page.said() == []


def test_changes_stand_side_by_side_each_against_its_parent(page: Page, lab: RunningLab, tag: str) -> None:
    lines = "-WIDTH = 1\n+WIDTH = 2\n"
    lines_of = {"+WIDTH = 2", "+DEPTH = 9"}
    (parent,) = measured(lab, tag, 3.0, diff=f"{BASE_PATCH}{lines} DEPTH = 1\n")
    (child,) = measured(lab, tag, 2.5, diff=f"{BASE_PATCH}{lines}-DEPTH = 1\n+DEPTH = 9\n", parent_id=parent)

    page.show(tag=tag, view="compare", ids=f"{parent},{child}")

    changes = [{"+WIDTH = 2"}, {"+DEPTH = 9"}]
    page.settles(
        lambda: [set(change.splitlines()) & lines_of for change in page.texts("#view .patch")], changes
    )
    page.until(f"against {parent}", "#view .note")
