"""A program that asks NVML, or nvidia-smi if there is no NVML, about this machine's GPUs.

    python -I nvml.py list     one JSON array of the GPUs
    python -I nvml.py sample   answers each line `<uuid>` on stdin with one JSON object

A sick GPU can block an NVML call for minutes; only killing the calling process ends it.
It is run by path and imports nothing of Nightjar.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
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


_XID_KEPT_S = 300.0
"""Seconds for which samples name an Xid error, since not every sample is judged."""
_XIDS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""Xid errors that a faulty program causes on a healthy GPU (NVIDIA's catalogue of Xid errors)."""


class SmiFailed(Exception):
    """nvidia-smi exists but gives no numbers."""


def list_by_nvml(nvml: Nvml) -> list[dict[str, object]]:
    """Every GPU; NVML must be initialised."""
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
    """The numbers of one GPU, without those that its model does not measure."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def ask(question: Callable[[], object]) -> object:
        try:
            return question()
        except nvml.NVMLError:
            return None

    memory = nvml.nvmlDeviceGetMemoryInfo(handle)  # may raise: without this number a GPU is sick
    throttle = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    numbers = {
        "temperature_c": ask(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
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
    numbers["processes"] = ask(
        lambda: _processes(
            (one.pid, one.usedGpuMemory) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        )
    )
    return {name: value for name, value in numbers.items() if value is not None}


def _processes(found: Iterable[tuple[int, int | None]]) -> dict[str, float] | None:
    """MiB by process id; None if the driver does not say how much one of them uses."""
    used: dict[str, float] = {}
    for pid, size in found:
        if size is None:
            return None
        used[str(pid)] = used.get(str(pid), 0.0) + size / _MIB
    return used


class XidWatch:
    """Remembers the Xid errors of GPUs: NVML sends them only to listeners, once."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._listening: dict[str, object] = {}
        self._seen: dict[str, tuple[int, float]] = {}

    def newest(self, uuid: str) -> int | None:
        """The newest Xid of the last `_XID_KEPT_S` seconds that is not a program's fault, or None."""
        if uuid not in self._listening:
            self._listening[uuid] = self._listen(uuid)
        for event in self._waiting(self._listening[uuid]):
            if event.eventData not in _XIDS_OF_PROGRAMS:
                self._seen[uuid] = (int(event.eventData), time.monotonic())
        xid, seen_at = self._seen.get(uuid, (None, 0.0))
        return xid if time.monotonic() - seen_at < _XID_KEPT_S else None

    def _listen(self, uuid: str) -> object:
        """An NVML event set that collects Xid errors from now on; None if the model reports none."""
        try:
            events = self._nvml.nvmlEventSetCreate()
            handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        except self._nvml.NVMLError:
            return None
        return events

    def _waiting(self, events: object) -> Iterator[Any]:
        while events is not None:
            try:
                yield self._nvml.nvmlEventSetWait_v2(events, 0)
            except self._nvml.NVMLError:  # a timeout: no event waits
                return


def throttle_names(reasons: int) -> str | None:
    """Names of the bits of NVML's clock reasons; idle (bit 0) is no throttling."""
    names = [name for bit, name in _THROTTLES.items() if reasons & bit]
    return "+".join(names) or None


def list_by_smi() -> list[dict[str, object]]:
    rows = _smi("gpu", "index,uuid,name,memory.total,driver_version")
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
    row = _smi("gpu", ",".join(fields.values()), "--id=" + uuid)[0]
    apps = _smi("compute-apps", "pid,used_memory", "--id=" + uuid)
    sizes = [(int(pid), _number(size)) for pid, size in apps]
    values: dict[str, object] = {
        "processes": _processes((pid, None if size is None else int(size * _MIB)) for pid, size in sizes)
    }
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
    xids = XidWatch(nvml) if nvml is not None else None
    for line in sys.stdin:
        uuid = line.strip()
        try:
            answer = sample_by_nvml(nvml, uuid) if nvml is not None else sample_by_smi(uuid)
            if xids is not None and (xid := xids.newest(uuid)) is not None:
                answer["xid"] = xid
        except Exception as error:  # noqa: BLE001 - any error is the answer for this GPU
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def _nvml() -> Nvml | None:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no library, no driver, or versions that differ: try nvidia-smi
        return None
    return pynvml


def _smi(about: str, query: str, *options: str) -> list[list[str]]:
    done = subprocess.run(
        ["nvidia-smi", f"--query-{about}={query}", "--format=csv,noheader,nounits", *options],
        capture_output=True,
        text=True,
        timeout=_SMI_S,
        check=False,
    )
    rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines()) if row]
    if (
        done.returncode != 0
        or any(len(row) != query.count(",") + 1 for row in rows)
        or (about == "gpu" and options and not rows)
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
