"""experiment::setup: metrics of any usual name, the direction that a name tells, and a second setup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.formats.metrics_block import DIRECTION_WORDS, direction_of
from state.errors import Invalid
from tests.labs import open_tag, refused, tried

BOTH = '"minimize" or "maximize"'


DIRECTIONS = {
    "minimize": ["val_bpb", "val/loss", "val loss", "log_loss", "test.mse", "WER", "fid-50k"],
    "maximize": [
        *("val_acc", "eval/acc@1", "f1", "macro F1", "bbox_mAP", "mean_val_auc", "rouge-l"),
        *("Accuracy", "r2", "episode.reward"),
    ],
}


def test_a_metric_s_name_tells_its_direction_and_words_that_disagree_are_named() -> None:
    assert {
        way: [n for n in names if direction_of(n) == way] for way, names in DIRECTIONS.items()
    } == DIRECTIONS
    with pytest.raises(Invalid, match="its words loss and map disagree"):
        direction_of("map_loss")


async def test_no_metric_at_all_is_val_bpb_and_lower_is_better(client: httpx.AsyncClient) -> None:
    opened = await open_tag(client)
    assert opened["tag"]["metric"] == {"name": "val_bpb", "direction": "minimize", "target": None}


async def test_a_metric_whose_direction_nobody_can_tell_is_refused(client: httpx.AsyncClient) -> None:
    names = ["quality", "top-1", "val_fbeta", "lossless", "accuracyish", "map_loss", "error_score"]
    for nth, name in enumerate(names):
        over = await refused(client, 422, "/api/experiment/setup", tag="t", metric={"name": name})
        said = await open_tag(client, f"t{nth}", metric={"name": name, "direction": "maximize"})

        assert BOTH in over["hint"]
        assert name in over["detail"]
        assert said["tag"]["metric"]["direction"] == "maximize"


def test_the_page_lists_the_words_that_tell_a_direction() -> None:
    page = (Path(__file__).parents[3] / "docs" / "your-problem.md").read_text()
    for direction, words in DIRECTION_WORDS.items():
        listed = next(line for line in page.splitlines() if line.endswith(f"| `{direction}` |"))
        assert set(listed.split("|")[1].strip().split(", ")) == words


async def test_a_metric_s_name_may_have_the_signs_of_loggers_and_no_others(client: httpx.AsyncClient) -> None:
    for name in ("", " loss", "loss ", "a" * 81, "loss\n", "lo:ss", "---", "1.5", "a\u202eb", "lösung"):
        metric = {"name": name, "direction": "minimize"}
        over = await refused(client, 422, "/api/experiment/setup", tag="t", metric=metric)

        assert over["errors"][0]["field"] == "metric.name"
    for nth, name in enumerate(("a" * 80, "1st_loss", "@loss", "val/loss.mean@10", "-loss-")):
        opened = await open_tag(client, f"t{nth}", metric={"name": name, "direction": "minimize"})

        assert opened["tag"]["metric"]["name"] == name


@pytest.mark.parametrize(
    ("body", "ignored"),
    [
        ({"metric": {"name": "val_bpb"}, "policy": {"crash_limit": 3}}, {}),
        (
            {"metric": {"name": "accuracy"}},
            {
                "metric.name": {"sent": "accuracy", "has": "val_bpb"},
                "metric.direction": {"sent": "maximize", "has": "minimize"},
            },
        ),
        ({"metric": {"target": 0.5}}, {"metric.target": {"sent": 0.5, "has": None}}),
        (
            {"policy": {"budgets.base_s": 60, "traces": {"mode": "multi"}}},
            {
                "policy.budgets.base_s": {"sent": 60.0, "has": 300.0},
                "policy.traces.mode": {"sent": "multi", "has": "single"},
            },
        ),
        (
            {"branch": "other", "base_commit": "abc1234", "evaluator": "score.py"},
            {
                "base_commit": {"sent": "abc1234", "has": None},
                "branch": {"sent": "other", "has": "autoresearch/mar11"},
                "evaluator": {"sent": "score.py", "has": "prepare.py"},
            },
        ),
    ],
)
async def test_a_second_setup_says_what_it_ignored(
    client: httpx.AsyncClient, body: dict[str, Any], ignored: dict[str, Any]
) -> None:
    await open_tag(client)
    await tried(client, 0.99)

    over = await refused(client, 409, "/api/experiment/setup", tag="mar11", **body)

    there = {"branch": "autoresearch/mar11", "best_val_bpb": 0.99, "total_experiments": 1}
    assert over["ignored"] == ignored
    assert over["existing"]["metric"]["name"] == "val_bpb"
    assert {name: over["existing"][name] for name in there} == there
    for name, pair in ignored.items():
        assert f"{name} {pair['sent']!r} (it has {pair['has']!r})" in over["detail"]
