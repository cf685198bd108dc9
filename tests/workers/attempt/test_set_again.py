"""A script that sets a constant again, to another value, is ended; one that computes with it is left alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from functions.formats.constants import patch_constants, with_checks
from workers.attempt.worktree import JUDGE

pytestmark = pytest.mark.process

PARSER = "import argparse\nparser = argparse.ArgumentParser()\n"


def run(
    folder: Path, script: str, *arguments: str, names: Sequence[str] = ("LR",)
) -> subprocess.CompletedProcess[str]:
    """Run a script with its constants at 0.02 and the checks behind them."""
    patched = with_checks(patch_constants(script, dict.fromkeys(names, 0.02)), names, str(JUDGE))
    (folder / "train.py").write_bytes(patched.encode())
    command = [sys.executable, "train.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


OVERRIDDEN = {
    "exec in a function": 'def load():\n    exec("LR = 1e-3", globals())\nload()',
    "star import": "from settings import *",
    "argparse into globals": (
        f"{PARSER}parser.add_argument('--LR', default=1e-3)\nglobals().update(vars(parser.parse_args()))"
    ),
    "a loop over settings": "for name, value in {'LR': 1e-3}.items(): globals()[name] = value",
    "global": "def main():\n    global LR\n    LR = 1e-3\nmain()",
    "a schedule from the first step on": "for step in range(3):\n    LR = 0.5 ** step",
    "a function that a loop calls": (
        "def train(step):\n    global LR\n    LR = 1e-3\n    return LR\nfor step in range(9): train(step)"
    ),
    "del": "del LR",
    "a value that cannot be compared": "class A:\n    __eq__ = None\nexec('LR = A()')",
}
KEPT = {
    "names of builtins": "map = all = list = getattr = None\nexec('')",
    "argparse with its own default": (
        f"{PARSER}parser.add_argument('--lr', type=float, default=LR)\nLR = parser.parse_args().lr"
    ),
    "an import that fails": "try:\n    from no_settings import LR\nexcept ImportError: pass",
    "a scheduler behind a function": (
        "used = [LR]\ndef update(step):\n    global LR\n    LR = 0.1 ** step\nfor step in range(3): update(step)"
    ),
    "halving after a failure": (
        "while True:\n    try:\n        if LR > 1e-2: raise MemoryError\n        break\n"
        "    except MemoryError:\n        LR /= 2"
    ),
    "a decay, then a look at all names": (
        "used = LR\nfor step in range(3): LR *= 0.5\nprint({k: globals()[k] for k in ['LR']}, len(vars()))"
    ),
    "a literal at the end": "from settings import *\nLR = 5e-4",
}
DROP = "    if step == 5: LR = 1e-5\n"
DECAYS = {
    "a drop before its use": f"for step in range(9):\n{DROP}    used = LR",
    "a drop in a function": (
        f"def main():\n    global LR\n    for step in range(9):\n    {DROP}        used = LR\nmain()"
    ),
    "a drop behind a function that uses it": f"def train(): return LR\nfor step in range(9):\n    train()\n{DROP}",
    "a smaller size after a failure": (
        "def train():\n    if LR > 1e-2: raise MemoryError\nwhile True:\n    try:\n        train()\n        break\n"
        "    except MemoryError:\n        LR = 1e-3"
    ),
}


@pytest.mark.parametrize("statement", OVERRIDDEN.values(), ids=OVERRIDDEN.keys())
def test_a_run_ends_where_its_script_gives_a_constant_another_value(tmp_path: Path, statement: str) -> None:
    (tmp_path / "settings.py").write_text("LR = 1e-3\n")

    done = run(tmp_path, f"LR = 3e-4\n{statement}\nprint('done')\n")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("\nnightjar.ConstantError: LR was set to 0.02, and is ")
    assert " after line " in done.stderr


@pytest.mark.parametrize("statement", KEPT.values(), ids=KEPT.keys())
def test_a_run_goes_on_that_keeps_its_constant_or_computes_with_it(tmp_path: Path, statement: str) -> None:
    (tmp_path / "settings.py").write_text("LR = 1e-3\n")

    done = run(tmp_path, f"LR = 3e-4\nfirst = LR\n{statement}\nprint('done', first)\n")

    assert (done.returncode, done.stderr) == (0, "")
    assert "done 0.02" in done.stdout


@pytest.mark.parametrize("statement", DECAYS.values(), ids=DECAYS.keys())
def test_a_run_goes_on_that_drops_its_constant_once_it_has_used_it(tmp_path: Path, statement: str) -> None:
    done = run(tmp_path, f"LR = 3e-4\n{statement}\nprint('done', LR)\n")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout != "done 0.02\n"


def test_one_such_statement_may_run_another(tmp_path: Path) -> None:
    script = (
        "A = 1\nLR = 3e-4\ndef load():\n    global LR\n    LR = float(dict().get('LR', LR))\n    return {}\n"
        "globals().update(load())\nprint('done', LR)\n"
    )

    done = run(tmp_path, script, names=["A", "LR"])

    assert (done.stdout, done.stderr) == ("done 0.02\n", "")


NANOGPT = """learning_rate = 6e-4
max_iters = 3
config_keys = [k for k,v in globals().items() if not k.startswith('_') and isinstance(v, (int, float, bool, str))]
exec(open('configurator.py').read()) # overrides from command line or config file
config = {k: globals()[k] for k in config_keys}
for iteration in range(max_iters):
    lr = learning_rate * 0.9 ** iteration
print(sorted(config.items()))
"""
CONFIGURATOR = """import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if '=' in arg:
        key, val = arg.split('=')
        globals()[key[2:]] = literal_eval(val)
    else:
        exec(open(arg).read())
"""


@pytest.mark.parametrize(
    ("arguments", "ends"), [([], False), (["--learning_rate=0.5"], True), (["config.py"], True)]
)
def test_a_configurator_works_unless_it_sets_the_constant(
    tmp_path: Path, arguments: list[str], ends: bool
) -> None:
    (tmp_path / "configurator.py").write_text(CONFIGURATOR)
    (tmp_path / "config.py").write_text("learning_rate = 1e-3\n")

    done = run(tmp_path, NANOGPT, *arguments, names=["learning_rate"])

    if ends:
        assert "learning_rate was set to 0.02" in done.stderr
        assert "after line 4" in done.stderr
    else:
        assert "('learning_rate', 0.02)" in done.stdout


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("begin", ["", "\ufeff", "'''é'''\n"])
def test_checks_move_no_line(newline: str, begin: str) -> None:
    script = begin + 'LR = 1\nexec(\n  "é"\n); NEXT = 2  # ü\nif NEXT: exec("")\nLAST = 3\n'
    script = script.replace("\n", newline)

    checked = with_checks(script, ["LR"], "/judge.py")

    assert checked.count(newline) == script.count(newline)
    assert checked.endswith(f"LAST = 3{newline}")
    lines = [
        {type(node): node.lineno for node in ast.parse(text.removeprefix("\ufeff")).body}
        for text in (script, checked)
    ]
    assert lines[0][ast.If] == lines[1][ast.If]


@pytest.mark.parametrize(
    ("write", "ending"), [("LR = 1e-3", ""), ("__dict__.pop('LR')", "import sys\nsys.exit(0)\n")]
)
def test_a_run_ends_in_an_error_if_another_module_sets_its_constant(
    tmp_path: Path, write: str, ending: str
) -> None:
    (tmp_path / "other.py").write_text(f"import __main__\ndef go():\n    __main__.{write}\n")

    done = run(tmp_path, f"LR = 3e-4  # rate\nWIDTH = 2\nimport other\nother.go()\nprint('done')\n{ending}")

    assert (done.returncode, done.stdout) == (1, "done\n")
    assert done.stderr.startswith("\nnightjar.ConstantError: LR was set to 0.02, and is ")
    assert "at the end: another module sets it." in done.stderr


@pytest.mark.parametrize("script", ["LR = 3e-4; first = LR", "if True: pass\nLR: float = 3e-4"])
def test_a_run_goes_on_if_no_module_sets_its_constant(tmp_path: Path, script: str) -> None:
    (tmp_path / "other.py").write_text("from __main__ import LR\nLR *= 2\nprint(LR)\n")

    done = run(tmp_path, f"{script}\nimport other\nprint('done', LR)\n")

    assert (done.returncode, done.stdout, done.stderr) == (0, "0.04\ndone 0.02\n", "")


def test_a_constant_that_its_script_may_change_is_not_looked_at_again() -> None:
    script = "import os\nLRS = [1, 2]\nWIDTH = 2\nWIDTH *= 2\ndef f():\n    LRS[0] = 3\nprint(f())\n"

    assert with_checks(script, ["LRS", "WIDTH"], "/judge.py") == script
