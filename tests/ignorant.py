"""Calls of a client that knows no traces. `data/ignorant.json` has the answers from before there were traces.

Only `started_at` of what agents train themselves is another since: it was null, and is when they registered it.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.labs import FORM

TAG = "mar11"
MASKED = frozenset(
    {"at", "age_s", "created_at", "lab", "time", "trace", "traceparent", "updated_at", "version"}
)
"""Times, and what differs from run to run."""

IDEA = {
    "tag": TAG,
    "category": "architecture",
    "hypothesis": "a wider MLP learns faster",
    "diff_summary": "4 -> 5",
}
CALLS: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("POST", "/api/experiment/setup", {"tag": TAG, "base_commit": "abc1234"}),
    ("POST", "/api/search/suggest", {"tag": TAG}),
    ("POST", "/api/experiment/register", {**IDEA, "commit_sha": "c1"}),
    (
        "POST",
        "/api/experiment/complete",
        {"experiment_id": "mar11-1", "val_bpb": 1.0, "training_seconds": 300},
    ),
    (
        "POST",
        "/api/experiment/register",
        {**IDEA, "commit_sha": "c2", "parent_id": "mar11-1", "diff": "+a\n"},
    ),
    ("POST", "/api/experiment/complete", {"experiment_id": "mar11-2", "val_bpb": 1.0015}),
    ("POST", "/api/experiment/register", {**IDEA, "commit_sha": "c3", "category": "optimizer"}),
    ("POST", "/api/experiment/complete", {"experiment_id": "mar11-3", "val_bpb": 0.99}),
    ("POST", "/api/experiment/register", {**IDEA, "commit_sha": "c4", "parent_ids": ["mar11-2", "mar11-3"]}),
    ("POST", "/api/experiment/crash", {"experiment_id": "mar11-4", "error": "boom"}),
    ("POST", "/api/experiment/register", {**IDEA, "commit_sha": "c5"}),
    ("POST", "/api/experiment/stop", {"experiment_id": "mar11-5"}),
    ("POST", "/api/experiment/register", {**IDEA, "commit_sha": "c6", "parent_id": "mar11-9"}),
    ("POST", "/api/experiment/complete", {"experiment_id": "mar11-3", "val_bpb": 0.98}),
    ("POST", "/api/experiment/complete", {"experiment_id": "mar11-3", "val_bpb": 0.99}),
    ("POST", "/api/experiment/submit", {**IDEA, "commit_sha": "c700000", "agent": "ann"}),
    ("GET", "/api/experiment/mar11-7/wait?timeout=0.01", None),
    ("GET", "/api/experiment/mar11-2", None),
    ("GET", "/api/experiment/mar11-4", None),
    ("POST", "/api/experiment/best", {"tag": TAG}),
    ("POST", "/api/experiment/near-misses", {"tag": TAG}),
    ("POST", "/api/experiment/history", {"tag": TAG}),
    ("POST", "/api/report/summary", {"tag": TAG}),
    ("POST", "/api/report/tsv", {"tag": TAG}),
    ("POST", "/api/report/brief", {"tag": TAG, "agent": "ann"}),
    ("POST", "/api/report/diff", {"experiment_a": "mar11-1", "experiment_b": "mar11-2"}),
    ("POST", "/api/search/suggest", {"tag": TAG}),
)


async def session(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Every call with its answer, masked."""
    found = []
    for method, path, body in CALLS:
        sent = None if body is None else json.dumps(body).encode()
        response = await http.request(method, path, content=sent, headers=FORM)
        found.append(
            {"call": f"{method} {path}", "status": response.status_code, "answer": masked(response.json())}
        )
    return found


def masked(value: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {
            name: masked(part)
            for name, part in value.items()
            if name not in MASKED and not (name.endswith("_at") and part is not None)
        }
    return [masked(part) for part in value] if isinstance(value, list) else value
