"""Asks NVML, or nvidia-smi where there is no NVML, about this machine's GPUs, as a process of its own.

    python -I nvml.py list     one JSON array of the GPUs
    python -I nvml.py sample   answers each line `<uuid>` on stdin with one JSON object

A sick GPU can block NVML for minutes, and nothing interrupts that call but killing the process that made it.
Run by path; imports nothing of Nightjar.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

Nvml = Any  # nvidia-ml-py ships no type information

_MIB = 1024 * 1024
_SMI_S = 20.0
_THROTTLES = {
    0x02: "applications_clocks",
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


class SmiFailed(Exception):
    """nvidia-smi is there, but has no numbers."""


def list_by_nvml(nvml: Nvml) -> list[dict[str, object]]:
    """Every GPU that an initialised NVML knows."""
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    found: list[dict[str, object]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        found.append(
            {
                "index": index,
                "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
                "name": _text(nvml.nvmlDeviceGetName(handle)),
                "vram_mb": int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
                "driver": driver,
            }
        )
    return found


def sample_by_nvml(nvml: Nvml, uuid: str) -> dict[str, object]:
    """The numbers of one GPU; what this model does not measure is absent."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def ask(question: Callable[[], object]) -> object:
        try:
            return question()
        except nvml.NVMLError:
            return None

    memory = nvml.nvmlDeviceGetMemoryInfo(
        handle
    )  # a GPU that cannot tell this is sick: the error is the answer
    throttle = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    numbers = {
        "temperature_c": ask(
            lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        ),
        "memory_used_mb": memory.used / _MIB,
        "memory_total_mb": memory.total / _MIB,
        "utilization_percent": ask(lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        "power_w": ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        "throttle": throttle_names(throttle) if isinstance(throttle, int) else None,
        "ecc": ask(
            lambda: int(
                nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            )
        ),
    }
    return {name: value for name, value in numbers.items() if value is not None}


def throttle_names(reasons: int) -> str | None:
    """Names of the bits of NVML's clock reasons; idle (bit 0) is no throttling."""
    names = [name for bit, name in _THROTTLES.items() if reasons & bit]
    return "+".join(names) or None


def list_by_smi() -> list[dict[str, object]]:
    rows = _smi("index,uuid,name,memory.total,driver_version")
    return [
        {
            "index": int(row[0]),
            "uuid": row[1],
            "name": row[2],
            "vram_mb": int(_number(row[3]) or 0),
            "driver": row[4],
        }
        for row in rows
    ]


def sample_by_smi(uuid: str) -> dict[str, object]:
    fields = {
        "temperature_c": "temperature.gpu",
        "memory_used_mb": "memory.used",
        "memory_total_mb": "memory.total",
        "utilization_percent": "utilization.gpu",
        "power_w": "power.draw",
        "ecc": "ecc.errors.uncorrected.volatile.total",
        "throttle": "clocks_throttle_reasons.active",
    }
    row = _smi(",".join(fields.values()), "--id=" + uuid)[0]
    values: dict[str, object] = {}
    for name, text in zip(fields, row, strict=True):
        if name == "throttle":
            values[name] = throttle_names(int(text, 16)) if text.startswith("0x") else None
        elif (number := _number(text)) is not None:
            values[name] = int(number) if name == "ecc" else number
    return {name: value for name, value in values.items() if value is not None}


def main(mode: str) -> None:
    nvml = _nvml()
    if mode == "list":
        try:
            found = list_by_nvml(nvml) if nvml is not None else list_by_smi()
        except FileNotFoundError:
            found = []
        print(json.dumps(found), flush=True)
        return
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        uuid = line.strip()
        try:
            answer = sample_by_nvml(nvml, uuid) if nvml is not None else sample_by_smi(uuid)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what there is to say about this GPU
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def _nvml() -> Nvml | None:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, no driver, or one that does not fit: nvidia-smi may know
        return None
    return pynvml


def _smi(query: str, *options: str) -> list[list[str]]:
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits", *options],
        capture_output=True,
        text=True,
        timeout=_SMI_S,
        check=False,
    )
    rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines()) if row]
    if (
        done.returncode != 0
        or any(len(row) != query.count(",") + 1 for row in rows)
        or (options and not rows)
    ):
        said = (done.stderr.strip() or done.stdout.strip())[-500:]
        raise SmiFailed(f"nvidia-smi exited with {done.returncode}: {said}")
    return rows


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported]
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main(sys.argv[1])
