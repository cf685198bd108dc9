"""report::night: progress, chain of keeps, failures and untried categories."""

from __future__ import annotations

import re

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from functions.experiments.rules.gains import Gain, chain
from functions.formats.markdown import code
from functions.trust.rules.discoveries import discoveries
from state.facts import Noise
from state.records import KeepRecord
from tests.labs import crashed, open_tag, told, tried

HEAD = "diff --git a/train.py b/train.py\nindex 1..2 100644\n--- a/train.py\n+++ b/train.py\n"


def patch(*changes: tuple[str, str]) -> str:
    """A patch of train.py by which these lines replace others."""
    body = "".join(f"-{before}\n+{after}\n" for before, after in changes)
    return f"{HEAD}@@ -1,9 +1,9 @@\n a\n{body}"


FIRST = patch(("LR = 0.1", "LR = 0.2"))
SECOND = patch(("LR = 0.1", "LR = 0.3"), ("DEPTH = 1", "DEPTH = 2"))


async def test_each_keep_shows_its_own_change_and_its_own_gain(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0, diff="", description="baseline")
    await tried(client, 0.9, diff=FIRST, description="LR 0.1 -> 0.2")
    await tried(client, 0.95, diff=patch(("LR = 0.1", "LR = 9")), description="too much")
    await tried(client, 0.6, diff=SECOND, description="deeper", result={"training_seconds": 90.0})

    night = await told(client, "/api/report/night", tag="mar11")

    assert [step["experiment_id"] for step in night["chain"]] == ["mar11-1", "mar11-2", "mar11-4"]
    assert [step["above"] for step in night["chain"]] == [None, "mar11-1", "mar11-2"]
    assert [step["gain"] for step in night["chain"]] == [None, pytest.approx(0.1), pytest.approx(0.3)]
    assert night["chain"][1]["change"] == "-LR = 0.1\n+LR = 0.2"
    assert sorted(night["chain"][2]["change"].split("\n")) == [
        *("+DEPTH = 2", "+LR = 0.3", "-DEPTH = 1", "-LR = 0.2"),
    ]
    assert night["gain"] == pytest.approx(0.4)
    assert night["headline"] == "1 -> 0.6 (one run). 4 ideas, 3 kept, 1.5 GPU minutes. Biggest: deeper."
    assert "| mar11-4 | mar11-2 | 0.6 | +0.300000 |  | `deeper` |" in night["markdown"]
    assert "```diff\n-LR = 0.1\n+LR = 0.2\n```" in night["markdown"]


async def again(client: httpx.AsyncClient, name: str, *values: float) -> None:
    """Run an experiment again, with these values."""
    for value in values:
        begun = await told(client, "/api/experiment/retest", experiment_id=name, train=False)
        await told(client, "/api/experiment/complete", experiment_id=begun["retest_id"], val_bpb=value)


async def test_the_keeps_that_hold_at_a_false_discovery_rate_are_told(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0, description="baseline")
    await tried(client, 0.9, description="wider")
    unknown = await told(client, "/api/report/night", tag="mar11")
    await again(client, "mar11-1", 1.002, 0.999, 1.001)
    before = await told(client, "/api/report/night", tag="mar11")
    await again(client, "mar11-2", 0.901, 0.902, 0.899)
    first = await told(client, "/api/report/night", tag="mar11")
    await tried(client, 0.8, description="deeper")
    waiting = await told(client, "/api/report/night", tag="mar11")
    await again(client, "mar11-3", 0.801, 0.802, 0.799)

    night = await told(client, "/api/report/night", tag="mar11")

    assert (unknown["holds"], unknown["holds_said"]) == (None, "")
    assert before["holds"] == []
    assert before["holds_said"] == (
        "At a false discovery rate of 10 %, the only keep does not hold yet."
        " Retests of mar11-2 and mar11-1 can show it for the best."
    )
    assert first["holds_said"] == (
        "At a false discovery rate of 10 %, 1 of 1 keep holds, whenever you look: mar11-2."
        " It is better than mar11-1."
    )
    assert waiting["holds"] == ["mar11-2"]
    assert waiting["holds_said"].endswith("Retests of mar11-3 and mar11-2 can show it for the best.")
    assert night["holds"] == ["mar11-2", "mar11-3"]
    assert night["holds_said"] == (
        "At a false discovery rate of 10 %, 2 of 2 keeps hold, whenever you look: mar11-2, mar11-3."
        " Each is better than the one before it, and mar11-2 than mar11-1."
    )
    assert night["holds_said"] in night["markdown"]
    assert night["headline"].startswith("1.0007 -> 0.8007 (mean of 3 more runs of each; first seen 0.8000)")
    assert "| mar11-1 | base commit | 1.0000 |" in night["markdown"]


async def test_discards_that_ran_again_raise_the_evidence_a_keep_needs(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0, description="baseline")
    await again(client, "mar11-1", 1.04, 0.97, 1.01)
    for _ in range(12):
        name = (await tried(client, 1.1))["experiment_id"]
        await again(client, name, 1.14)
    kept = (await tried(client, 0.905))["experiment_id"]
    await again(client, kept, 0.935, 0.875, 0.905)

    night = await told(client, "/api/report/night", tag="mar11")

    gain = Gain(night["first"], night["last"], night["gain"], night["gain_runs"])
    noise = Noise(night["sigma"], 3 + 12 + 3)
    assert discoveries("mar11-1", [(kept, 1)], lambda *_: gain, noise) == [kept]
    assert discoveries("mar11-1", [(kept, 13)], lambda *_: gain, noise) == []
    assert night["holds"] == []


async def test_failures_are_told_by_kind_with_the_newest_and_its_cause(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    for error in ("boom", "Traceback\nValueError: x | `y`\n"):
        await crashed(client, error=error)

    night = await told(client, "/api/report/night", tag="mar11")

    [failure] = night["failures"]
    assert (failure["count"], failure["experiment_id"]) == (2, "mar11-3")
    assert failure["error"] == "ValueError: x | `y`"
    assert "| `` ValueError: x \\| `y` `` |" in night["markdown"]


def keep(number: int, value: float, made_from: int | None, *, baseline: bool = False) -> KeepRecord:
    return KeepRecord(
        experiment_id=f"t-{number}",
        number=number,
        status="keep",
        category="other",
        description="",
        val_bpb=value,
        baseline=baseline,
        compared_with=None if made_from is None else f"t-{made_from}",
    )


def test_the_chain_leads_past_a_keep_that_is_none_any_more() -> None:
    keeps = [keep(1, 1.0, None, baseline=True), keep(2, 0.9, 1), keep(5, 0.7, 4)]
    steps = chain("t-5", keeps)
    assert [(s.keep.number, s.above and s.above.number) for s in steps] == [(1, None), (2, 1), (5, 2)]


@given(st.lists(st.tuples(st.integers(1, 9), st.one_of(st.none(), st.integers(1, 9))), max_size=9))
def test_the_chain_ends_whatever_the_records_say(links: list[tuple[int, int | None]]) -> None:
    keeps = list({number: keep(number, 1.0, above) for number, above in links}.values())
    steps = chain("t-9", keeps)
    numbers = [step.keep.number for step in steps]
    assert numbers == sorted(set(numbers))


@given(st.text(max_size=80))
def test_words_of_an_agent_are_never_markdown(words: str) -> None:
    shown = MarkdownIt().enable("table").render(f"| a | b |\n|---|---|\n| {code(words)} | end |")
    assert "<td>end</td>" in shown
    assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td|code)\b)", shown)


def test_a_backslash_before_a_bar_does_not_end_the_cell() -> None:
    assert code(r"a|b \| c") == r"`a\|b \ \| c`"
