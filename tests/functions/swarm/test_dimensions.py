"""What a swarm may vary in a tag: defined, listed, frozen and unfrozen, each change in one move with its event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.formats.dimensions import EXAMPLE
from functions.kernel.process.lifecycle import Process
from functions.swarm.dimensions import PROFILES, swarm_dimensions
from state.errors import Invalid
from state.tags import Policies, Tags
from tests.labs import dump, events_of, problem, refused, told

LR = {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1}
DEPTH = {"name": "DEPTH", "dtype": "int", "min": 4, "max": 24}
LIST = "/api/dimension/list"
DEFINE = "/api/dimension/define"
FREEZE = "/api/dimension/freeze"
UNFREEZE = "/api/dimension/unfreeze"


async def defined(client: httpx.AsyncClient, *dimensions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await told(client, DEFINE, tag="swarm", dimensions=[*dimensions], **more)


async def listed(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    answer = await told(client, LIST, tag="swarm")
    return {row["name"]: row for row in answer["dimensions"]}


async def test_defining_dimensions_creates_the_tag_once(client: httpx.AsyncClient, process: Process) -> None:
    frozen = DEPTH | {"frozen": True, "frozen_value": 8}
    made = await defined(client, LR, frozen)

    assert (made["created"], made["version"], made["added"]) == (True, 1, ["LR", "DEPTH"])
    tag = await Tags(process.lab).get("swarm")
    assert (tag.branch, tag.metric) == ("swarm/swarm", "val_bpb")
    assert (tag.direction, tag.base_commit) == ("minimize", None)
    policy, _ = await Policies(process.lab).get("swarm")
    assert not policy.baseline_first
    assert len(await events_of(process, "tag.created")) == 1
    [event] = await events_of(process, "dimension.defined")
    assert (event["subject"], event["count"], event["by"]) == ("swarm", 2, "operator")
    assert (event["added"], event["changed"], event["removed"]) == (["LR", "DEPTH"], [], [])
    assert (await listed(client))["DEPTH"]["frozen_value"] == 8
    [event] = await events_of(process, "dimension.frozen")
    assert (event["subject"], event["value"], event["reason"]) == ("DEPTH", 8, "declared frozen")
    assert (await told(client, "/api/lab/audit"))["violations"] == []
    before = await dump(process.lab)
    again = await defined(client, LR, frozen)
    assert (again["version"], again["added"], again["changed"]) == (1, [], [])
    assert await dump(process.lab) == before
    profile = await told(client, DEFINE, tag="swarm", profile="nanochat")
    assert profile["added"][0] == "learning_rate"


async def test_wrong_dimensions_make_no_tag(client: httpx.AsyncClient, process: Process) -> None:
    before = await dump(process.lab)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("give dimensions or a profile", {"dimensions": [LR], "profile": "mnist"}),
        ("'LR': there are two dimensions of this name", {"dimensions": [LR, LR]}),
        ("'LR': min 1 is not below max 0.1", {"dimensions": [LR | {"min": 1}]}),
        ("tag", {"dimensions": [LR], "tag": "a b"}),
    ]
    for why, fields in wrong:
        assert why in (await refused(client, 422, DEFINE, **({"tag": "swarm"} | fields)))["detail"]
    assert await dump(process.lab) == before


async def test_a_freeze_is_told_with_evidence_and_undone(client: httpx.AsyncClient, process: Process) -> None:
    await defined(client, LR, DEPTH)
    before = await listed(client)
    for value in (3, 25, 8.5, "8", True, None, [8], "NaN"):
        await refused(client, 422, FREEZE, tag="swarm", name="DEPTH", value=value, reason="x")
    assert await listed(client) == before

    done = await told(client, FREEZE, tag="swarm", name="DEPTH", value=8, reason="48 runs: no depth differs")
    assert (done["changed"], done["version"]) == (True, 2)
    row = (await listed(client))["DEPTH"]
    assert (row["frozen"], row["frozen_value"], row["frozen_by"]) == (True, 8, "operator")
    assert row["frozen_reason"] == "48 runs: no depth differs"
    assert row["frozen_at"].endswith("Z")
    [event] = await events_of(process, "dimension.frozen")
    assert (event["subject"], event["value"], event["by"]) == ("DEPTH", 8, "operator")
    assert event["reason"] == "48 runs: no depth differs"

    for why, changed in (("the data is another one", True), ("twice", False)):
        undone = await told(client, UNFREEZE, tag="swarm", name="DEPTH", reason=why)
        assert undone["changed"] is changed
    assert await listed(client) == before
    [event] = await events_of(process, "dimension.unfrozen")
    assert (event["subject"], event["value"], event["reason"]) == ("DEPTH", 8, "the data is another one")


async def test_an_unknown_dimension_or_tag_is_not_found(client: httpx.AsyncClient, process: Process) -> None:
    await defined(client, LR)
    before = await dump(process.lab)
    for path, value in ((FREEZE, {"value": 1}), (UNFREEZE, {})):
        no_name = await refused(client, 404, path, tag="swarm", name="L", reason="x", **value)
        no_tag = await refused(client, 404, path, tag="mars", name="LR", reason="x", **value)
        await refused(client, 422, path, tag="swarm", name="LR", **value)
        assert "it has LR" in no_name["hint"]
        assert "there is no tag 'mars'" in no_tag["detail"]
    assert await dump(process.lab) == before


async def test_the_swarm_s_tag_lists_proposals_early(client: httpx.AsyncClient, process: Process) -> None:
    before = await dump(process.lab)
    asking = {"": 200, "?tag=mars": 404}
    for query, status in asking.items():
        for method in ("GET", "DELETE"):
            assert (await client.request(method, "/dimension_proposals" + query)).status_code == status
    for query in ("?tag=a%20b", "?limit=1"):
        problem(await client.get("/dimension_proposals" + query), 422)
    assert await dump(process.lab) == before


CONTENTS = (None, b"", b"[[dimension]]", b"\xff\xfe", b"\0", b"x" * 300_000)


def test_the_setting_is_a_profile_or_the_path_of_a_file_with_dimensions(tmp_path: Path) -> None:
    file = tmp_path / "dimensions.toml"
    file.write_text(EXAMPLE)
    assert [d.name for d in swarm_dimensions(str(file))] == ["LEARNING_RATE"]
    assert {profile: len(swarm_dimensions(profile)) for profile in PROFILES} == {"mnist": 6, "nanochat": 8}
    for content in CONTENTS:
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(Invalid, match="NIGHTJAR_SWARM_PROFILE") as refusal:
            swarm_dimensions(str(file))
        assert refusal.value.hint
    for path in ("", "~nobody-of-this-name/x", "a\0b", "/"):
        with pytest.raises(Invalid, match="neither mnist nor nanochat"):
            swarm_dimensions(path)
