"""Calls with openapi-python-client's client, generated as `lab_client`; prints what the lab said."""

import json
import sys

from lab_client import AuthenticatedClient
from lab_client.api.experiment import (
    experiment_best,
    experiment_complete,
    experiment_history,
    experiment_register,
    experiment_setup,
)
from lab_client.models import (
    Complete,
    ListHistory,
    Metric,
    OfTag,
    OpenTag,
    Problem,
    RegisterExperiment,
    RegisterExperimentCategory,
)

url, token, tag = sys.argv[1:]
lab = AuthenticatedClient(base_url=url, token=token, timeout=60)

nothing = experiment_best.sync(client=lab, body=OfTag(tag=tag))
assert isinstance(nothing, Problem)
opened = experiment_setup.sync(client=lab, body=OpenTag(tag=tag, metric=Metric(target=0.9)))
registered = experiment_register.sync(
    client=lab,
    idempotency_key=f"the first of {tag}",
    body=RegisterExperiment(
        tag=tag,
        hypothesis="deeper is better",
        category=RegisterExperimentCategory.ARCHITECTURE,
        commit_sha="4f9a1c2",
        diff_summary="DEPTH = 8 -> 12",
        parent_id=None,
        config_delta=None,
    ),
)
completed = experiment_complete.sync(
    client=lab, body=Complete(experiment_id=registered.experiment_id, val_bpb=0.9979, depth=8)
)
history = experiment_history.sync(client=lab, body=ListHistory(tag=tag, limit=5))
best = experiment_best.sync(client=lab, body=OfTag(tag=tag))

print(
    json.dumps(
        {
            "refused": nothing.status,
            "branch": opened.branch,
            "target": opened.tag.metric.target,
            "number": registered.number,
            "improved": completed.improved,
            "statuses": [str(e.status) for e in history.experiments],
            "best": best.experiment.val_bpb,
        }
    )
)
