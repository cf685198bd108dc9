"""Writes the folder of a certificate: patches, records and logs of its runs, environment, verdict, verify.py."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from functions.trust.rules import sequential
from state.errors import Conflict
from state.program import VERSION
from triggers.certificates import verify

Ask = Callable[[str, str, Mapping[str, Any] | None], Any]
"""Method, path and body of a request to the lab; the answer."""
RULE = "from functions.trust.rules.sequential import decided, paired_gain\n"


def verifier() -> str:
    """The text of verify.py: the test's own source within the checks."""
    rule = Path(sequential.__file__).read_text()
    checks = Path(verify.__file__).read_text()
    rule = re.sub(r"from __future__ .*\n\n", "", rule).strip()
    return re.sub(r"\n{3,}", "\n\n", checks.replace(RULE, f"{rule}\n"))


def check_new(folder: Path) -> None:
    """Refuse a folder that is there.

    Raises:
        Conflict: it is.
    """
    if folder.exists():
        raise Conflict(f"{str(folder)!r} is there already", hint="name another folder: -o DIR")


def write(folder: Path, ask: Ask, experiment: str) -> str:
    """Write the folder of an experiment's decided certificate; answers the verdict as verify.py prints it.

    It appears under its name once it is whole.

    Raises:
        Conflict: there is such a folder.
    """
    check_new(folder)
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        (making / "runs").mkdir(parents=True)
        _fill(making, ask, experiment)
        (making / "manifest.json").write_bytes(verify.manifest_of(making))
        said = verify.verify(making)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return said


def _fill(folder: Path, ask: Ask, experiment: str) -> None:
    candidate = _shown(ask, experiment)
    one = candidate["certificate"]
    reference = _shown(ask, one["against"])
    tag = candidate["experiment"]["tag"]
    night = ask("POST", "/api/report/night", {"tag": tag, "changes": False})
    from_logs, gpus = [], set()
    for pair in one["pairs"]:
        for name in (pair["candidate"], pair["reference"]):
            found = _shown(ask, name)
            run, log = found["experiment"], found["log_tail"] or ""
            gpus.add(run["gpu_id"])
            _json(folder / "runs" / f"{name}.json", run)
            (folder / "runs" / f"{name}.log").write_bytes(log.encode("utf-8", "replace"))
            if run["score"] == "reported" and verify.logged(log, night["metric"]) == run["val_bpb"]:
                from_logs.append(name)
    sides = {"candidate": candidate, "reference": reference}
    for side, found in sides.items():
        _json(folder / f"{side}.json", found["experiment"])
        (folder / f"{side}.patch").write_bytes((found["diff"] or "").encode())
    about = {
        **{name: value for name, value in one.items() if name not in ("experiment_id", "against")},
        "candidate": one["experiment_id"],
        "reference": one["against"],
        "tag": tag,
        "metric": night["metric"],
        "base_commit": night["base_commit"],
        "commits": {side: found["experiment"]["commit_sha"] for side, found in sides.items()},
        "from_logs": sorted(from_logs),
    }
    _json(folder / "certificate.json", about)
    rows = [row for row in ask("GET", "/api/pool/list", None)["workers"] if row["gpu_id"] in gpus]
    kept = ("gpu_id", "gpu_name", "vram_mb", "uuid", "host", "labels")
    environment = {
        "nightjar": VERSION,
        "gpus": [
            {name: row.get(name) for name in kept} | {"environment": _environment(ask, row["gpu_id"])}
            for row in rows
        ],
        "driver": sorted({row["labels"].get("driver", "none") for row in rows}),
    }
    _json(folder / "environment.json", environment)
    (folder / "verify.py").write_text(verifier())
    (folder / "README.md").write_text(readme(about))


def readme(about: Mapping[str, Any]) -> str:
    """One line with the verdict, and how to check it."""
    pairs = [pair for pair in about["pairs"] if pair["broken"] is None]
    why = f" ({about['reason']})" if about["reason"] else ""
    broken = len(about["pairs"]) - len(pairs)
    return (
        f"{about['candidate']} against {about['reference']}: **{about['state']}**{why} at alpha {about['alpha']:g},"
        f" margin {about['min_gain']:g} of {about['metric']}, {len(pairs)} pairs"
        f"{f' and {broken} run again' if broken else ''}, e-value {about['e_value']:.6g}."
        f" Certificate {about['nth']} of this candidate.\n\n"
        "`python3 -I verify.py` computes it again and refuses any changed byte. `*.patch` apply to"
        f" {about['base_commit'] or 'the base commit'}. `runs/` has the record, the seed and the last 16 KiB of the"
        " log of each run.\n"
    )


def _shown(ask: Ask, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ask("GET", f"/api/experiment/{name}", None)
    return found


def _environment(ask: Ask, gpu_id: str) -> list[str]:
    """The Python that trains on a GPU, and its packages."""
    found: list[str] = ask("POST", "/api/gpu/history", {"gpu_id": gpu_id})["environment"]
    return found


def _json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")
