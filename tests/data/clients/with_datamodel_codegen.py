"""Calls by hand with the models of datamodel-codegen, generated as `lab_client`; prints what the lab said."""

import json
import sys

import httpx
from lab_client import (
    Complete,
    Completed,
    HistoryPage,
    Incumbent,
    ListHistory,
    Metric,
    OfTag,
    OpenedTag,
    OpenTag,
    Problem,
    RegisteredExperiment,
    RegisterExperiment,
)
from pydantic import BaseModel

url, token, tag = sys.argv[1:]
lab = httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60)


def asked(verb: str, request: BaseModel) -> httpx.Response:
    body = request.model_dump_json(exclude_unset=True)
    return lab.post(f"/api/experiment/{verb}", content=body, headers={"content-type": "application/json"})


nothing = Problem.model_validate_json(asked("best", OfTag(tag=tag)).content)
opened = OpenedTag.model_validate_json(
    asked("setup", OpenTag(tag=tag, metric=Metric(target=0.9))).raise_for_status().content
)
idea = RegisterExperiment(
    tag=tag,
    hypothesis="deeper is better",
    category="architecture",
    commit_sha="4f9a1c2",
    diff_summary="DEPTH = 8 -> 12",
    parent_id=None,
)
registered = RegisteredExperiment.model_validate_json(asked("register", idea).raise_for_status().content)
result = Complete(experiment_id=registered.experiment_id, val_bpb=0.9979, depth=8)
completed = Completed.model_validate_json(asked("complete", result).raise_for_status().content)
history = HistoryPage.model_validate_json(asked("history", ListHistory(tag=tag, limit=5)).content)
best = Incumbent.model_validate_json(asked("best", OfTag(tag=tag)).content)

print(
    json.dumps(
        {
            "refused": nothing.status,
            "branch": opened.branch,
            "target": opened.tag.metric.target,
            "number": registered.number,
            "improved": completed.improved,
            "statuses": [e.status.value for e in history.experiments],
            "best": best.experiment.val_bpb,
        }
    )
)
