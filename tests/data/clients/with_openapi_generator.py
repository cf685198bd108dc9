"""Calls with openapi-generator's Python client, generated as `lab_client`; prints what the lab said."""

import json
import sys

from lab_client import (
    ApiClient,
    ApiException,
    Complete,
    Configuration,
    ExperimentApi,
    ListHistory,
    Metric,
    OfTag,
    OpenTag,
    RegisterExperiment,
)

url, token, tag = sys.argv[1:]
lab = ExperimentApi(ApiClient(Configuration(host=url, access_token=token)))

try:
    lab.experiment_best(OfTag(tag=tag))
    refused = 200
except ApiException as problem:
    refused = json.loads(problem.body)["status"]
opened = lab.experiment_setup(OpenTag(tag=tag, metric=Metric(target=0.9)))
registered = lab.experiment_register(
    RegisterExperiment(
        tag=tag,
        hypothesis="deeper is better",
        category="architecture",
        commit_sha="4f9a1c2",
        diff_summary="DEPTH = 8 -> 12",
        parent_id=None,
    ),
    idempotency_key=f"the first of {tag}",
)
completed = lab.experiment_complete(Complete(experiment_id=registered.experiment_id, val_bpb=0.9979, depth=8))
history = lab.experiment_history(ListHistory(tag=tag, limit=5))
best = lab.experiment_best(OfTag(tag=tag))

print(
    json.dumps(
        {
            "refused": refused,
            "branch": opened.branch,
            "target": opened.tag.metric.target,
            "number": registered.number,
            "improved": completed.improved,
            "statuses": [e.status for e in history.experiments],
            "best": best.experiment.val_bpb,
        }
    )
)
