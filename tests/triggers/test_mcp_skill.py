"""What docs/mcp.md and the skill tell of the tools is so."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from functions.kernel.table import table
from triggers.mcp_tools import NAMES, tools_of

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "nightjar" / "SKILL.md"
PAGE = (ROOT / "docs" / "mcp.md").read_text()


def calls(text: str) -> list[tuple[str, str]]:
    return re.findall(rf"\b({'|'.join(NAMES)}) (\{{[^\n}}]*\}})", text)


@pytest.mark.parametrize(("tool", "arguments"), calls(SKILL.read_text() + PAGE))
def test_every_call_in_the_skill_and_the_page_validates(tool: str, arguments: str) -> None:
    declared, fields = tools_of(table())[tool].chosen(json.loads(arguments))

    assert declared.request.model_validate(fields, strict=True)


def test_the_skill_shows_every_tool() -> None:
    assert {tool for tool, _ in calls(SKILL.read_text())} == set(NAMES)


def test_the_skill_has_the_head_that_agents_look_for() -> None:
    head = yaml.safe_load(SKILL.read_text().split("---\n")[1])

    assert head["name"] == SKILL.parent.name
    assert 1 <= len(head["description"]) <= 1024
    assert set(head) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert len(SKILL.read_text().splitlines()) < 500


def test_the_page_shows_each_tool_with_its_functions() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE)

    assert {tool: re.findall(r"`(\w+::\w+)`", named) for tool, named in rows} == {
        tool: list(named.values()) for tool, named in NAMES.items()
    }


def test_the_page_s_settings_of_clients_can_be_read() -> None:
    ((_, of_claude), (_, of_codex)) = re.findall(r"```(json|toml)\n(.+?)```", PAGE, re.DOTALL)

    assert json.loads(of_claude)["mcpServers"]["nightjar"]["url"].endswith("/mcp")
    assert tomllib.loads(of_codex)["mcp_servers"]["nightjar"]["tool_timeout_sec"] > 50
