"""What a language model proposes: hypotheses through the gate, dimensions onto the list, the graph in prose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.beliefs import hypotheses
from functions.kernel.process.lifecycle import Process
from functions.pi.rules.findings import Findings, suggested
from state.records import Hypothesis
from tests.functions.pi.test_programs_by_models import SAID, author_process
from tests.functions.swarm.test_swarm import DIMENSIONS
from tests.labs import told

NAMES = [d["name"] for d in DIMENSIONS]
TEST = {"decision_rule": {"threshold": 0.001}}


def spec_of(name: str, values: list[Any]) -> dict[str, Any]:
    return {"type": "single_factor_effect", "variable": name, "values": values, **TEST}


def claim(statement: str, **more: Any) -> dict[str, Any]:
    why, test = "the findings say nothing against it", spec_of("LR", [0.001, 0.01])
    plain = {"statement": statement, "type": "positive", "importance": 0.6}
    return plain | {"rationale": why, "test_spec": test} | more


async def opened(client: httpx.AsyncClient) -> None:
    await told(client, "/api/dimension/define", tag="swarm", dimensions=DIMENSIONS)


async def done(pi: Process, function: str, number: int = 1) -> dict[str, Any]:
    """What the lane's job does."""
    call = pi.invoker.system("pi", "queue")
    return (await pi.invoker.call(function, {"tag": "swarm", "number": number}, call)).model_dump()


async def test_what_passes_the_gate_is_a_hypothesis_and_the_rest_is_refused_with_its_reason(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposals = [
        claim("LR above 0.01 reaches a lower loss", config_constraint={"LR": {"min": 0.01}}),
        claim("WIDTH beyond every range is best", config_constraint={"WIDTH": {"min": 12}}),
        claim("LR above 0.01 reaches a lower loss"),
    ]
    filled = SAID.filled("HypothesisProposals", {"proposals": proposals})
    async with author_process(process, monkeypatch, filled) as (pi, stage):
        await opened(client)
        begun = await told(client, "/api/hypothesis/draft", tag="swarm")
        answer = await done(pi, "hypothesis::draft")

    known = (await told(client, "/api/hypothesis/list", tag="swarm"))["hypotheses"]
    assert begun["became"] == "asked"
    assert len(answer["accepted"]) == 1
    assert answer["refused"] == ["invalid_constraint", "duplicate_statement"]
    [new] = [h for h in known if h["hypothesis_id"] == answer["accepted"][0]]
    assert new["source"] == "llm_proposed"
    [request] = stage.received
    assert "Findings of swarm" in str(request.body)


async def test_no_model_is_paid_for_hypotheses_of_a_tag_that_has_as_many_as_it_may_have(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypotheses, "MOST", 3)
    filled = SAID.filled("HypothesisProposals", {"proposals": [claim("LR above 0.01 is best")]})
    async with author_process(process, monkeypatch, filled) as (pi, stage):
        await opened(client)
        await told(client, "/api/hypothesis/bootstrap", tag="swarm")
        answer = await done(pi, "hypothesis::draft")
    assert answer == {"tag": "swarm", "author": None, "accepted": [], "refused": []}
    assert stage.received == []


def test_without_a_model_pairs_that_matter_together_are_claimed() -> None:
    pairs = [("DEPTH", "LR", 0.2), ("DEPTH", "WIDTH", 0.01)]
    findings = Findings("swarm", "val_bpb", "minimize", results=100, strategy="exploit", interactions=pairs)

    [proposal] = suggested(findings, [])

    assert proposal["statement"] == "the effect of DEPTH depends on LR"
    assert proposal["dimensions"] == ["DEPTH", "LR"]
    claim_before = Hypothesis.model_validate(
        {"hypothesis_id": "hyp_1", "tag": "swarm", "created_at": 0.0, "source": "default", **proposal}
        | {"kind": "interaction"}
    )
    assert [*suggested(findings, [claim_before])] == []


async def test_without_a_model_a_draft_enters_what_was_measured_once(client: httpx.AsyncClient) -> None:
    await opened(client)
    first, second = [await told(client, "/api/hypothesis/draft", tag="swarm") for _ in range(2)]
    assert first == second == {"tag": "swarm", "became": "drafted", "accepted": []}


async def test_dimensions_that_a_model_proposes_are_listed_and_not_adopted(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"name": "WARMUP_RATIO", "dtype": "float", "min": 0.0, "max": 0.5, "default_value": 0.0}
    given |= {"rationale": "the first steps are steep", "train_py_line": "WARMUP_RATIO = 0.0"}
    filled = SAID.filled("DimensionProposals", {"proposals": [given]})
    async with author_process(process, monkeypatch, filled) as (pi, _):
        await opened(client)
        begun = await told(client, "/api/dimension/draft", tag="swarm", results=0)
        answer = await done(pi, "dimension::draft")

    listed = (await client.get("/dimension_proposals?tag=swarm")).json()["proposals"]
    known = (await told(client, "/api/dimension/list", tag="swarm"))["dimensions"]
    assert begun["became"] == "asked"
    assert answer["proposed"] == ["WARMUP_RATIO"]
    assert [(p["name"], p["source"], p["adopted"]) for p in listed] == [("WARMUP_RATIO", "llm", False)]
    assert [d["name"] for d in known] == NAMES


SECRETS = {
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "HF_TOKEN": "hf_QwErTyUiOpAsDfGhJkLzXcVbNm",
    "RUN_NAME": "sk-ant-api03-QwErTyUiOp-AsDfGh",
    "CREDENTIALS": {"user": "ann", "phrase": "open sesame"},
    "SERVICE": {"auth": "an open word"},
    "REMOTE": b"6f1ed002ab5595859014ebf0951522d9",
    "DATA_PATH": "/home/ann/data",
}


async def test_no_key_or_path_of_a_train_py_reaches_the_provider(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    constants = {**SECRETS, "N_TOKENS": 4096, "VOCAB_TOKENS": 512, "TOKENIZER": "bytes", "WIDTH": 64}
    script = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    (tmp_path / "train.py").write_text(script)
    filled = SAID.filled("DimensionProposals", {"proposals": []})
    async with author_process(process, monkeypatch, filled, clone=tmp_path) as (pi, stage):
        await opened(client)
        await told(client, "/api/dimension/draft", tag="swarm", results=0)
        await done(pi, "dimension::draft")

    [request] = stage.received
    said = str(request.body)
    assert all(f"{name} = " in said for name in ("N_TOKENS", "VOCAB_TOKENS", "TOKENIZER", "WIDTH"))
    assert "secrets are left out" in said
    for secret in ("0123456789abcdef", "hf_", "sk-ant", "sesame", "open word", "6f1ed002", "/home/ann"):
        assert secret not in said
    assert not any(name in said for name in SECRETS)


async def derived(client: httpx.AsyncClient) -> dict[str, Any]:
    """What is said of the graph."""
    answer: dict[str, Any] = (await client.get("/theory_graph/human?tag=swarm")).json()["derived_layer"]
    return answer


async def test_the_graph_is_told_by_a_model_until_a_hypothesis_stands_otherwise(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = SAID.filled("GraphSummary", {"summary": "Little is known of LR."})
    async with author_process(process, monkeypatch, filled) as (pi, stage):
        await opened(client)
        await told(client, "/api/hypothesis/bootstrap", tag="swarm")
        computed = await derived(client)
        told_now, told_again = await done(pi, "hypothesis::tell"), await done(pi, "hypothesis::tell")
        prose = await derived(client)
        proposal = {"statement": "lower LR values train better"}
        await told(client, "/api/hypothesis/propose", tag="swarm", proposal=proposal)
        later = await derived(client)

    assert computed["author"] is None
    assert (prose["summary_text"], prose["author"]) == ("Little is known of LR.", told_now["author"])
    assert prose["derived_not_authoritative"] is True
    assert told_again["author"] is None
    assert len(stage.received) == 1
    assert later["author"] is None
