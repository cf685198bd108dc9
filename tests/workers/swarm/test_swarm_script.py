"""What a swarm needs of a train.py is read without running it, and set without touching another byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from state.errors import Invalid
from workers.swarm.project import read_swarm_script

TINYLM = (Path(__file__).parents[3] / "examples" / "tinylm" / "train.py").read_bytes()


def test_the_example_has_all_that_a_swarm_needs() -> None:
    script = read_swarm_script(TINYLM)

    assert list(script.lacks()) == []
    assert script.own_budget_s == 5.0
    assert {"LEARNING_RATE", "WIDTH", "OPTIMIZER"} <= set(script.tunable)
    assert script.tunable.keys().isdisjoint({"SEED", "TOTAL_WALL_CLOCK_TIME", "WEIGHTS"})
    assert script.without(["WIDTH", "HIDDEN_SIZE", "SEED", "N_LAYERS"]) == ["HIDDEN_SIZE", "N_LAYERS"]


def test_constants_budget_and_seed_are_set_and_every_other_byte_stays() -> None:
    script = read_swarm_script(TINYLM)

    patched = script.configured({"LEARNING_RATE": 0.0003, "OPTIMIZER": "adam"}, budget_s=420.0, seed=7)

    expected = TINYLM.replace(b"LEARNING_RATE = 0.001 ", b"LEARNING_RATE = 0.0003 ")
    expected = expected.replace(b"TOTAL_WALL_CLOCK_TIME = 5\n", b"TOTAL_WALL_CLOCK_TIME = 420\n")
    assert patched == expected.replace(b"SEED = 1337", b"SEED = 7")
    assert script.configured({}, budget_s=None, seed=None) == TINYLM


def test_what_is_reported_of_a_run_is_all_that_it_was_made_of() -> None:
    script = read_swarm_script(b"LR = 3e-4\nN = 2\nSEED = 1\nPATH = '/data'\nTOTAL_WALL_CLOCK_TIME = 300\n")

    assert script.config({"LR": 0.01, "PATH": "/x"}, seed=9) == {"LR": 0.01, "N": 2, "PATH": "/x", "SEED": 9}


def test_a_run_s_seed_is_set_under_any_name_and_a_name_that_is_bound_again_can_be_set() -> None:
    script = read_swarm_script(b"LR = 3e-4\nWARMUP = 5\nWARMUP = f()\nrandom_seed = 1\n")

    assert script.configured({"WARMUP": 3}, budget_s=None, seed=9) == (
        b"LR = 3e-4\nWARMUP = 3\nWARMUP = f()\nrandom_seed = 9\n"
    )
    assert script.without(["WARMUP", "WIDTH"]) == ["WIDTH"]
    assert script.config({}, seed=9) == {"LR": 3e-4, "random_seed": 9}


@pytest.mark.parametrize(
    "source", [b"", b"import os\nLR = os.getpid()\n", b"SEED = 1\nTOTAL_WALL_CLOCK_TIME = 5\n"]
)
def test_a_script_with_nothing_to_vary_is_refused(source: bytes) -> None:
    with pytest.raises(Invalid, match="no constant that a swarm could vary") as raised:
        read_swarm_script(source)

    assert "LEARNING_RATE = 0.001" in str(raised.value.hint)


@pytest.mark.parametrize("source", [b"LR = \n", b"\xff\xfe"])
def test_what_is_no_python_is_refused(source: bytes) -> None:
    with pytest.raises(Invalid):
        read_swarm_script(source)


@pytest.mark.parametrize("line", ["", "TOTAL_WALL_CLOCK_TIME = budget()", "TOTAL_WALL_CLOCK_TIME = True"])
def test_without_a_number_to_set_the_budget_is_not_the_server_s(line: str) -> None:
    script = read_swarm_script(f"LR = 0.1\n{line}\nreport(1, 0.5)\n".encode())

    told = list(script.lacks())
    assert len(told) == 1
    assert "Add `TOTAL_WALL_CLOCK_TIME = 300`" in told[0]
    assert script.own_budget_s is None
    assert (
        script.configured({"LR": 0.2}, budget_s=60, seed=1) == f"LR = 0.2\n{line}\nreport(1, 0.5)\n".encode()
    )


def test_without_a_report_the_two_lines_to_add_are_told_and_they_are_enough() -> None:
    told = list(read_swarm_script(b"LR = 0.1\nTOTAL_WALL_CLOCK_TIME = 300\n").lacks())
    first, second = (line.strip() for line in told[0].splitlines()[1:])

    assert first == "from nightjar_report import report"
    whole = f"{first}\nLR = 0.1\nTOTAL_WALL_CLOCK_TIME = 300\nfor step in range(9):\n    {second}\n"
    assert list(read_swarm_script(whole.encode()).lacks()) == []
