"""Walking up the graph of experiments, and along an index, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence

from functions.kernel.process.lifecycle import Process
from state import reads
from state.client import Lab
from state.experiments import Experiments
from state.reads import STEPS
from state.records import Experiment, SelectionRecord, Status
from tests.functions.sample import experiment


def node(number: int, parents: Sequence[int] = (), status: Status = "discard", **more: object) -> Experiment:
    names = {"experiment_id": f"t-{number}", "tag": "t", "parent_ids": [f"t-{parent}" for parent in parents]}
    return experiment(number, status=status, **names, **more)


async def stored(lab: Lab, *nodes: Experiment) -> Experiments:
    for e in nodes:
        fields = [word for pair in e.flat().items() for word in pair]
        await lab.command("HSET", lab.keys.experiment(e.experiment_id), *fields)
    return Experiments(lab)


async def test_the_base_above_is_found_however_long_nothing_was_kept(process: Process) -> None:
    failed = [node(n, [n - 1]) for n in range(2, 2 * STEPS + 10)]
    experiments = await stored(process.lab, node(1, status="keep"), *failed)
    await process.lab.command("SCRIPT", "FLUSH")  # as after a failover
    base = await experiments.base_above([failed[-1].experiment_id])
    assert base is not None
    assert base.experiment_id == "t-1"


async def test_the_base_above_goes_by_what_was_selected(process: Process) -> None:
    chosen = SelectionRecord(kind="extend", trace_id="t-t1", parent_ids=["t-2"], base_experiment_id="t-1")
    rootless = chosen.model_copy(update={"base_experiment_id": None})
    experiments = await stored(
        process.lab,
        *(node(1, status="keep"), node(2, status="keep")),
        *(node(3, [2], selection=chosen.model_dump()), node(4, [2], selection=rootless.model_dump())),
    )

    found = [await experiments.base_above(ids) for ids in (["t-3"], ["t-4"], ["t-9"], [])]

    assert [e.experiment_id if e else None for e in found] == ["t-1", None, None, None]


async def test_ancestors_are_read_once_each_and_only_so_many(process: Process) -> None:
    lab = process.lab
    await stored(lab, node(1), node(2, [1]), node(3, [1, 2]), node(4, [2, 3]), node(5, [4, 99]))
    asked = [(["t-4", "t-3"], 50), (["t-5"], 3), (["t-4", "t-3"], 4)]

    answers = await lab.read(*(reads.above(lab, parents, most) for parents, most in asked))

    whole, cut, exact = ((reads.ancestry(known), is_whole) for known, is_whole in answers)

    assert (sorted(whole[0]), whole[1]) == (["t-1", "t-2", "t-3", "t-4"], True)
    assert (sorted(cut[0]), cut[1]) == (["t-2", "t-3", "t-4", "t-5"], False)
    assert (cut[0]["t-5"].parent_ids, cut[0]["t-2"].parent_ids) == (["t-4"], [])
    assert (len(exact[0]), exact[1]) == (4, True)


async def test_an_index_is_read_with_the_hashes_of_its_members(process: Process) -> None:
    lab = process.lab
    await stored(lab, node(1), node(2, status="keep"))
    index = lab.keys("lineage", "t")
    await lab.command("ZADD", index, 1, "t-1", 2, "t-2", 3, "t-gone")
    hashes = lab.keys.experiment("")

    both, newest = await lab.read(
        reads.members(lab, index, hashes, limit=9),
        reads.members(lab, index, hashes, limit=2, high=2, newest=True, fields=("status", "agent")),
    )

    assert [fields.get("status") for fields in both.values()] == ["discard", "keep", None]
    assert newest == {"t-2": ["keep", None], "t-1": ["discard", None]}


async def test_a_long_error_is_cut_between_two_characters(process: Process) -> None:
    lab = process.lab
    await lab.command("ZADD", lab.keys("some"), "1", "t-1")
    for beside in ("", "a", "ab", "abc"):
        error = beside + "日本" * 2000
        await lab.command("HSET", lab.keys.experiment("t-1"), "error", error, "metrics", "{}", "number", "1")

        (found,) = await lab.read(reads.members(lab, lab.keys("some"), limit=1, brief=True))

        assert set(found["t-1"]) == {"error", "number"}
        assert error.startswith(found["t-1"]["error"])
        assert 3990 < len(found["t-1"]["error"].encode()) <= 4000
