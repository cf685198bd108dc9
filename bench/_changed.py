"""The folder of a certificate of a made-up lab, and the changes of it that verify.py does not refuse."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from triggers.certificates.folder import write


def made_up_lab(method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Answers of a lab in which m-2 is certified against m-1."""
    name = path.rpartition("/")[2]
    first, _, nth = name.partition(".")
    values = {n: [0.5 + n / 1000, 1.0 + n / 900] for n in range(9)}
    runs = [{"candidate": f"m-2.{n}", "reference": f"m-1.{n}", "measured": values[n]} for n in range(2, 9)]
    value = values[int(nth or 0)][first == "m-1"]
    run = {"experiment_id": name, "retest_of": first, "tag": "m", "val_bpb": value, "score": "reported"}
    one = {"experiment_id": "m-2", "against": "m-1", "direction": "minimize", "min_gain": 0.1, "alpha": 0.01}
    one |= {
        "most_pairs": 30,
        "gpu_class": "H100",
        "state": "certified",
        "reason": "",
        "e_value": 108.0,
        "nth": 1,
    }
    return {
        "experiment": run
        | {"gpu_id": "g", "gpu_class": "H100", "seed": nth, "commit_sha": f"sha of {first}"},
        "certificate": one | {"pairs": [pair | {"first": "candidate", "broken": None} for pair in runs]},
        "diff": "+x\n",
        "log_tail": f"step 1\n---\nval_bpb: {value!r}\ntraining_seconds: 3\n",
        "metric": "val_bpb",
        "base_commit": "abc1234",
        "environment": ["python==3.11.9"],
        "workers": [{"gpu_id": "g", "gpu_name": "H100", "labels": {"driver": "580.1"}}],
    }


def unrefused(places: int, rng: np.random.Generator) -> tuple[int, list[str]]:
    """Number of changed folders that were tried, and those that verify.py did not refuse."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "certificate")
        write(folder, made_up_lab, "m-2")
        verified = runpy.run_path(str(folder / "verify.py"))["verify"]

        def passes() -> bool:
            try:
                return str(verified(folder)).startswith("certified:")
            except (Exception, SystemExit):  # noqa: BLE001  # whatever ends it, it does not pass
                return False

        def passes_alone() -> bool:
            """The same by the folder's own verify.py, which may have changed."""
            words = [sys.executable, "-I", "-S", "verify.py"]
            done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
            return done.returncode == 0 and done.stdout.startswith(b"certified:")

        if not passes_alone():
            return 0, ["the folder as it was written"]
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        missed, tried = [], 0
        for file in files:
            whole, accepted = file.read_bytes(), passes_alone if file.name == "verify.py" else passes
            for place in sorted(set(rng.integers(0, len(whole), max(2, places // len(files))).tolist())):
                file.write_bytes(
                    whole[:place] + bytes([whole[place] ^ 1 << int(rng.integers(8))]) + whole[place + 1 :]
                )
                tried += 1
                missed += [f"{file.name} at {place}"] if accepted() else []
            for what in (whole + b"\n", whole[:-1], None):
                file.unlink() if what is None else file.write_bytes(what)
                tried += 1
                missed += [f"{file.name}, longer, shorter or missing"] if accepted() else []
            file.write_bytes(whole)
        shutil.copy(folder / "README.md", folder / "runs" / "more.log")
        return tried + 1, missed + (["a file more"] if passes() else [])
