"""A scan finds the other values of texts, and hyperparameters that are no constants."""

from __future__ import annotations

import pytest

from functions.formats.dimensions import read_dimensions, scan, scanned_file
from functions.formats.hyperparameters import choices_in
from state.errors import Invalid

THREE = ["adam", "sgd", "muon"]


@pytest.mark.parametrize(
    "script",
    [
        'OPTIMIZER = "adam"  # adam, sgd or muon',
        'OPTIMIZER = "adam"  # one of: "adam" | "sgd" | "muon"',
        'OPTIMIZER = "adam"  # which optimizer (adam / sgd / muon)',
        "OPTIMIZER = 'adam'  # options: [adam (default), sgd, muon]",
        'OPTIMIZER: str = "adam" # choices {adam, sgd, muon}',
        'OPTIMIZER = "adam"  # "adam", "sgd", "muon" (default adam)',
        'OPTIMIZER = "adam"  # adam vs sgd vs. muon',
        'OPTIMIZER = "adam"  # the optimizer (also: sgd, muon)',
        'OPTIMIZER = "adam"  # or sgd / muon',
        'MAKE = {"adam": 1, "sgd": 2, "muon": 3}\nOPTIMIZER = "adam"\nmake = MAKE[OPTIMIZER]',
        '# the optimizer: adam, sgd, or muon.\nOPTIMIZER = "adam"',
        '# adam, sgd, muon\n# muon needs a larger rate\nOPTIMIZER = "adam"',
        'from typing import Literal\nOPTIMIZER: Literal["adam", "sgd", "muon"] = "adam"',
        'OPTIMIZER = "adam"\nif OPTIMIZER == "sgd":\n    pass\nelif OPTIMIZER == "muon":\n    pass',
        'OPTIMIZER = "adam"\nassert OPTIMIZER in ("adam", "sgd", "muon")',
        'OPTIMIZER = "adam"\nmake = {"adam": 1, "sgd": 2, "muon": 3}[OPTIMIZER]',
        'OPTIMIZER = "adam"\ndef f():\n    match OPTIMIZER:\n        case "sgd" | "muon":\n            pass',
        'OPTIMIZER = "adam"  # é: adam, sgd, muon\nprint(f"{d["x"]}")',
    ],
)
def test_what_else_a_text_may_be_is_read_from_its_comment_type_or_comparisons(script: str) -> None:
    assert choices_in(script) == {"OPTIMIZER": THREE}
    [(declared, value)] = scan(script).found
    assert (declared.dtype, declared.categories, value) == ("categorical", THREE, "adam")


@pytest.mark.parametrize(
    "comment",
    [
        *("", "# adam is best, with warmup", "# sgd or muon", "# see the paper, page 3", "# adam"),
        "# adam and no nan",
    ],
)
def test_a_text_without_another_value_is_left_out_and_not_made_a_category_of_one(comment: str) -> None:
    found = scan(f'LR = 3e-4\nOPTIMIZER = "adam"  {comment}\n')
    assert [declared.name for declared, _ in found.found] == ["LR"]
    assert found.left_out["OPTIMIZER"].startswith("'adam', and nothing says what else it may be")


ELSEWHERE = """
import argparse
from dataclasses import dataclass, field
import click

STEPS = 100
WIDTH = 8 * SIZE
DEPTH = 4
DEPTH = 6
parser = argparse.ArgumentParser()
parser.add_argument("-l", "--learning-rate", type=float, default=3e-4, help="f{d['x']}")
parser.add_argument("--bs", dest="batch_size", type=int, default=2**5)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("epochs", nargs="?", default=3)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--steps", default=STEPS)

@dataclass
class GPT:
    n_layer: int = 12
    dropout: float = field(default=0.1)
    names: list = field(default_factory=list)

class TrainConfig:
    beta = 0.9

class Model(nn.Module):
    scale = 1.5

cfg = {"warm_steps": 10, "width": WIDTH, 3: 4, **more}
params = dict(alpha=0.5)
labels = {"cat": 0}

class Settings(BaseModel):
    momentum: float = Field(0.5, ge=0)

@click.option("--decay", default=0.01)
def main(decay): ...

flags.DEFINE_float("warmup", 0.05, "share")
"""


def test_defaults_of_options_and_fields_of_classes_are_found_with_their_place() -> None:
    left_out = scan(ELSEWHERE).left_out

    assert left_out["learning_rate"] == (
        "0.0003 is the default of an option (line 11). To vary it, write `LEARNING_RATE = 0.0003` at the top level"
        " and LEARNING_RATE there"
    )
    assert left_out["batch_size"].startswith("32 is the default of an option (line 12)")
    assert left_out["decay"].startswith("0.01 is the default of an option")
    assert left_out["warmup"].startswith("0.05 is the default of a flag")
    assert left_out["n_layer"].startswith("12 is a field of GPT (line 20)")
    assert left_out["dropout"].startswith("0.1 is a field of GPT")
    assert left_out["beta"].startswith("0.9 is a field of TrainConfig")
    assert left_out["epochs"].startswith("3 is the default of an option")
    assert left_out["warm_steps"].startswith("10 is an entry of cfg")
    assert left_out["alpha"].startswith("0.5 is an entry of params")
    assert left_out["momentum"].startswith("0.5 is a field of Settings")
    assert left_out["WIDTH"].startswith("computed (line 7)")
    assert left_out["DEPTH"].startswith("set again (line 8)")
    assert "seed" in left_out["seed"]
    assert left_out.keys().isdisjoint({"compile", "steps", "names", "scale", "STEPS", "cat"})


def test_a_script_whose_hyperparameters_are_all_elsewhere_is_refused_with_their_names() -> None:
    with pytest.raises(Invalid, match="it has learning_rate, batch_size"):
        scan("\n".join(line for line in ELSEWHERE.splitlines() if line.startswith("parser.")))


def test_what_is_found_elsewhere_stays_a_comment_of_the_file() -> None:
    name, value = '"--a\\n[[dimension]]", default=1', '"--b", default="x\\n[[dimension]]"'
    text = scanned_file(scan(f"LR = 1.5\np.add_argument({name})\np.add_argument({value})\n"), "train.py")
    assert [declared.name for declared in read_dimensions(text).dimensions] == ["LR"]
    assert "#   b: 'x\\n[[dimension]]' is the default of an option" in text
