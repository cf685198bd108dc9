"""The page /docs: every function of the table, rendered on the server, readable offline."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from functions.kernel.contract import Function, Picture, Text
from functions.kernel.schemas import schema_of

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.92em; }
details { border-top: 1px solid #8885; padding: 0.4rem 0; }
summary { cursor: pointer; }
summary code { font-weight: 600; }
table { border-collapse: collapse; margin: 0.5rem 0 0.5rem 1rem; }
td, th { text-align: left; padding: 0.15rem 1rem 0.15rem 0; vertical-align: top; }
caption { text-align: left; opacity: 0.7; }
.role { opacity: 0.7; }
"""


def docs_page(functions: Mapping[str, Function[Any, Any]]) -> str:
    """HTML with a section per function: routes, role, fields of the request and of the answer."""
    rows = "\n".join(_section(name, declared) for name, declared in functions.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Nightjar: functions</title>'
        f"<style>{STYLE}</style></head><body><h1>Nightjar</h1>"
        f"<p>{len(functions)} functions. Machine-readable: <a href='/openapi.json'>/openapi.json</a>, "
        "<a href='/api/function/list'>/api/function/list</a>; the lab's state: "
        "<a href='/api/lab/status'>/api/lab/status</a>.</p>"
        f"{rows}</body></html>"
    )


def _section(name: str, declared: Function[Any, Any]) -> str:
    fired = "<br>".join(f"<code>{escape(str(trigger))}</code>" for trigger in declared.triggers)
    answer = declared.answering.response
    asks = schema_of(declared.request, "request")
    says = {} if issubclass(answer, Picture | Text) else _fields_of(schema_of(answer, "answer"))
    return (
        f"<details><summary><code>{escape(name)}</code> {escape(declared.description)} "
        f"<span class='role'>({escape(', '.join(declared.roles))})</span></summary>"
        f"<p>{fired}</p>{_table('asks', asks)}{_table('answers', says)}</details>"
    )


def _fields_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema whose fields an answer has: of a bare array, that of its items."""
    if schema.get("type") != "array":
        return schema
    found: Mapping[str, Any] = schema["$defs"].get(schema["items"].get("$ref", "").rpartition("/")[2], {})
    return found


def _table(caption: str, schema: Mapping[str, Any]) -> str:
    """The fields of a request or an answer; of a request, which ones it must have."""
    required = schema.get("required", []) if caption == "asks" else []
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{'required' if field in required else ''}</td>"
        f"<td>{escape(of.get('description', ''))}</td></tr>"
        for field, of in schema.get("properties", {}).items()
    )
    return f"<table><caption>{caption}</caption>{rows}</table>" if rows else ""
