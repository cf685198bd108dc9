"""Verifies a certificate of Nightjar: `python3 -I verify.py [FOLDER]`; its own folder if none is named.

It refuses any byte that was changed, is missing or was added, reads the values of the runs from their logs, and
computes the verdict again. It needs the standard library alone. It cannot tell whether the lab that wrote the logs
was honest. Take verify.py from Nightjar's repository. Compare the hash that it prints with the one that the author
published.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from functions.trust.rules.sequential import decided, paired_gain


def refuse(why: str) -> NoReturn:
    sys.exit(f"REFUSED: {why}")


def manifest_of(folder: Path) -> bytes:
    """SHA-256 of every file but the manifest."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or name == "runs"):
            refuse(f"{name} is no file of a certificate")
        if path.is_file() and name != "manifest.json":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return (json.dumps(found, indent=1, sort_keys=True) + "\n").encode()


def logged(log: str, metric: str) -> float | None:
    """The number in the last line of a log that is `metric: NUMBER`."""
    number = r"-?[0-9.]+(?:e[+-]?[0-9]+)?"
    said = re.findall(
        rf"(?im)^[ \t]*{re.escape(metric)}[ \t]*:[ \t]*({number})[ \t]*$", log.replace("\r", "\n")
    )
    try:
        return float(said[-1]) if said else None
    except ValueError:
        return None


def value_of(folder: Path, name: str, one: dict[str, Any], side: str) -> float:
    """The value of a run. Its log has to say it, unless an evaluator measured it or the log is cut."""
    run = json.loads((folder / "runs" / f"{name}.json").read_bytes())
    value = run["val_bpb"]
    if (run["retest_of"], run["commit_sha"]) != (one[side], one["commits"][side]):
        refuse(f"{name} is no run of the {side}")
    if run["gpu_class"] != one["gpu_class"]:
        refuse(f"{name} ran on another class of GPU")
    log = (folder / "runs" / f"{name}.log").read_bytes().decode("utf-8", "replace")
    if name in one["from_logs"] and logged(log, one["metric"]) != value:
        refuse(f"the log of {name} does not say {value}")
    return float(value)


def verify(folder: Path) -> str:
    """The verdict in a sentence; exits where anything is wrong."""
    manifest = manifest_of(folder)
    if (folder / "manifest.json").read_bytes() != manifest:
        refuse("a file was changed, is missing or was added: manifest.json does not fit")
    one = json.loads((folder / "certificate.json").read_bytes())
    sign = 1 if one["direction"] == "minimize" else -1
    gains, runs = [], []
    for pair in one["pairs"]:
        if pair["broken"] is None:
            values = [value_of(folder, pair[side], one, side) for side in ("candidate", "reference")]
            gains.append(paired_gain(sign * values[1], sign * values[0], one["min_gain"]))
            runs += [pair["candidate"], pair["reference"]]
    if len(set(runs)) != len(runs):
        refuse("a run counts twice")
    state, e_value = decided(gains, one["alpha"], one["most_pairs"])
    if state != one["state"] and (state, one["state"]) != ("running", "inconclusive"):
        refuse(f"the values say {state}, the certificate {one['state']}")
    said = len(set(runs) & set(one["from_logs"]))
    return (
        f"{one['state']}: {one['candidate']} against {one['reference']}, a gain of more than {one['min_gain']:g} at"
        f" alpha {one['alpha']:g}. {len(gains)} pairs, e-value {e_value:.6g}, {said} of {len(runs)}"
        f" values read from logs\nmanifest {hashlib.sha256(manifest).hexdigest()}"
    )


if __name__ == "__main__":
    print(verify(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parent))
