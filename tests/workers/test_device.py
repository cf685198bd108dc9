"""Devices through a fake NVML, a fake nvidia-smi, and helpers that hang, lie or die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from state.errors import Invalid
from workers import nvml
from workers.attempt.job import HealthSample
from workers.slot import Device, HealthSampler, discover

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

SMI = """#!/bin/sh
case "$*" in
  *query-compute-apps*--id=GPU-b*) echo "4711, 900"; echo "4712, 124" ;;
  *temperature.gpu*--id=GPU-b*) echo "61, 1024, 81559, 97, [N/A], 0, 0x0000000000000044" ;;
  *temperature.gpu*) echo "No devices were found"; exit 6 ;;
  *index*)
    echo "0, GPU-a, NVIDIA H100 80GB HBM3, 81559, 550.54"
    echo "1, GPU-b, NVIDIA A100, 40960, 550.54" ;;
esac
"""


def helper(tmp_path: Path, script: str) -> tuple[str, ...]:
    (tmp_path / "helper.py").write_text(script)
    return (sys.executable, "-I", str(tmp_path / "helper.py"))


def without_nvml(tmp_path: Path) -> tuple[str, ...]:
    return helper(
        tmp_path,
        f"import sys; sys.path.insert(0, {str(Path(nvml.__file__).parent)!r})\n"
        "import nvml; nvml._nvml = lambda: None; nvml.main(sys.argv[1])",
    )


@pytest.fixture
def gpu() -> Device:
    return Device(
        "h:GPU-b", index=1, name="NVIDIA A100", vram_mb=40960, uuid="GPU-b", driver="550", kind="gpu"
    )


class NvmlError(Exception):
    """What NVML raises."""


def fake_nvml(xids: Sequence[int] = ()) -> SimpleNamespace:
    """As much of pynvml as is asked, for one GPU that does not measure its power. `xids`: a list to be emptied."""
    mib = 1024**2
    used = ((4711, 3 * mib), (4712, mib), (4711, mib))
    answers: dict[str, object] = {
        "SystemGetDriverVersion": b"550.54",
        "DeviceGetCount": 1,
        "DeviceGetHandleByIndex": "handle 0",
        "DeviceGetHandleByUUID": "handle 0",
        "DeviceGetUUID": b"GPU-a",
        "DeviceGetName": "NVIDIA H200",
        "DeviceGetMemoryInfo": SimpleNamespace(total=1000 * mib, used=250 * mib),
        "DeviceGetTemperature": 55,
        "DeviceGetUtilizationRates": SimpleNamespace(gpu=88, memory=1),
        "DeviceGetCurrentClocksThrottleReasons": 0x1,
        "DeviceGetTotalEccErrors": 2,
        "DeviceGetComputeRunningProcesses": [SimpleNamespace(pid=pid, usedGpuMemory=n) for pid, n in used],
        "EventSetCreate": xids,
        "DeviceRegisterEvents": None,
    }

    def power(handle: str) -> int:
        raise NvmlError("Not Supported")

    def newest(events: list[int], timeout_ms: int) -> SimpleNamespace:
        if not events:
            raise NvmlError("Timeout")
        return SimpleNamespace(eventData=events.pop(0))

    return SimpleNamespace(
        **{f"nvml{name}": partial(lambda answer, *_: answer, answer) for name, answer in answers.items()},
        nvmlDeviceGetPowerUsage=power,
        nvmlEventSetWait_v2=newest,
        NVMLError=NvmlError,
        NVML_TEMPERATURE_GPU=0,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        nvmlEventTypeXidCriticalError=8,
    )


def test_nvml_lists_the_gpus() -> None:
    assert nvml.list_by_nvml(fake_nvml()) == [
        {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H200", "vram_mb": 1000, "driver": "550.54"}
    ]


def test_what_a_gpu_does_not_measure_is_absent_and_not_zero() -> None:
    assert nvml.sample_by_nvml(fake_nvml(), "GPU-a") == {
        "temperature_c": 55.0,
        "memory_used_mb": 250.0,
        "memory_total_mb": 1000.0,
        "utilization_percent": 88.0,
        "ecc": 2,
        "processes": {"4711": 4.0, "4712": 1.0},
    }


def test_an_xid_error_of_the_gpu_is_told_for_a_while_and_a_programs_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = list[int]()
    xids = nvml.XidWatch(fake_nvml(events))

    seen = [xids.newest("GPU-a")]
    events += [13, 31]
    seen.append(xids.newest("GPU-a"))
    events += [79, 43]
    seen += [xids.newest("GPU-a"), xids.newest("GPU-a")]
    monkeypatch.setattr(nvml, "_XID_KEPT_S", 0.0)
    seen.append(xids.newest("GPU-a"))

    assert seen == [None, None, 79, 79, None]


def test_a_machine_without_nvml_and_nvidia_smi_has_no_gpu_but_cpu_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert discover("h", cpu=2, helper=without_nvml(tmp_path)) == [
        Device("h:cpu0", index=0, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu"),
        Device("h:cpu1", index=1, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu"),
    ]


@pytest.fixture
def only_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return without_nvml(tmp_path)


def test_without_nvml_the_gpus_are_those_of_nvidia_smi(only_smi: tuple[str, ...]) -> None:
    assert discover("h", helper=only_smi) == [
        Device("h:GPU-a", 0, "NVIDIA H100 80GB HBM3", 81559, "GPU-a", "550.54", "gpu"),
        Device("h:GPU-b", 1, "NVIDIA A100", 40960, "GPU-b", "550.54", "gpu"),
    ]


def test_one_gpu_is_chosen_by_its_index_and_a_wrong_index_names_those_there_are(
    only_smi: tuple[str, ...],
) -> None:
    assert [device.uuid for device in discover("h", gpu="1", helper=only_smi)] == ["GPU-b"]
    assert discover("h", gpu="none", helper=only_smi) == []
    with pytest.raises(
        Invalid, match=r"this machine has no GPU 7; it has: 0 \(NVIDIA H100 80GB HBM3\), 1 \(NVIDIA A100\)"
    ):
        discover("h", gpu=7, helper=only_smi)


async def test_nvidia_smi_is_sampled_where_there_is_no_nvml(only_smi: tuple[str, ...], gpu: Device) -> None:
    async with HealthSampler(helper=only_smi, timeout_s=60, start_timeout_s=60) as sampler:
        health = await sampler.sample(gpu)
        sick = await sampler.sample(Device("h:GPU-x", 0, "x", 0, "GPU-x", None, "gpu"))

    assert health == HealthSample(
        temperature_c=61,
        memory_used_mb=1024,
        memory_total_mb=81559,
        utilization_percent=97,
        throttle="sw_power_cap+hw_thermal",
        ecc=0,
        processes={4711: 900.0, 4712: 124.0},
    )
    assert sick.error == "SmiFailed: nvidia-smi exited with 6: No devices were found"


async def test_a_sick_gpu_that_blocks_nvml_costs_three_seconds_and_the_helper(
    tmp_path: Path, gpu: Device
) -> None:
    hangs_once = helper(
        tmp_path,
        f"""
import json, os, sys, time
print("{{}}", flush=True)
for line in sys.stdin:
    if not os.path.exists({str(tmp_path / "hung")!r}):
        open({str(tmp_path / "hung")!r}, "w").close()
        time.sleep(600)
    print(json.dumps({{"temperature_c": 50.5}}), flush=True)
""",
    )
    async with HealthSampler(helper=hangs_once) as sampler:
        first = await sampler.sample(gpu)
        second = await sampler.sample(gpu)

    assert first == HealthSample(error="NVML did not answer within 3 s")
    assert second == HealthSample(temperature_c=50.5)


@pytest.mark.parametrize(
    "script", ["", "print('{}')", "print('no json'); input()", "print('{}'); print('[]'); input()"]
)
async def test_a_helper_that_dies_or_talks_nonsense_is_an_error_of_the_sample(
    tmp_path: Path, gpu: Device, script: str
) -> None:
    async with HealthSampler(helper=helper(tmp_path, script)) as sampler:
        health = await sampler.sample(gpu)

    assert health.error is not None
    assert health.error.startswith("the NVML helper failed: ")


IDLE_THEN_BUSY = """
import asyncio, json, subprocess, sys
from dataclasses import asdict
from workers.slot import HealthSampler, discover

async def main():
    [slot] = discover("h", gpu="none", cpu=1)
    async with HealthSampler() as sampler:
        idle = await sampler.sample(slot)
        run = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            while not (busy := await sampler.sample(slot)).utilization_percent:
                await asyncio.sleep(0.05)
        finally:
            run.kill()
            run.wait()
        print(json.dumps([asdict(idle), asdict(busy)]))

asyncio.run(main())
"""


def test_a_cpu_slot_shows_the_load_and_memory_of_its_own_processes() -> None:
    """The process that samples has no others at first, whatever else runs on the machine."""
    done = subprocess.run([sys.executable, "-c", IDLE_THEN_BUSY], capture_output=True, check=True, cwd=ROOT)
    idle, busy = json.loads(done.stdout)

    assert (idle["utilization_percent"], idle["memory_used_mb"], idle["temperature_c"]) == (0, 0, None)
    assert 0 < busy["utilization_percent"] <= 100
    assert 0 < busy["memory_used_mb"] < busy["memory_total_mb"]
