"""Why runs fail: the last exception and the exit status decide, not what libraries remark on the way."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.failure_kind import classify_failure

FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    fit()\n    ~~~^^\n'
BUG = f"{FRAMES}ValueError: shapes (32, 10) and (32, 11) do not fit\n"
HANDLING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def kind(log: str, returncode: int | None = 1) -> str:
    return classify_failure(log, returncode, metrics={})


REMARKS = [
    "cuInit: no CUDA-capable device is detected",
    "UserWarning: Can't initialize NVML",
    "Failed to initialize NVML: Driver/library version mismatch",
    "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility",
    "WARNING: No CUDA GPUs are available, using the CPU",
    "ImportError: no flash attention, using the slow one",
    f"{FRAMES}ModuleNotFoundError: No module named 'flash_attn'\nusing the slow attention",
    "CUDA out of memory, going on with half the batch",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory, autotuning goes on",
    "Allocation of 4294967296 exceeds 10% of free system memory.",
    "could not write the cache: No space left on device",
    "step 3 | loss: nan, skipped",
]


@pytest.mark.parametrize("remark", REMARKS)
def test_a_remark_does_not_explain_an_exception_that_comes_after_it(remark: str) -> None:
    assert kind(f"{remark}\n{BUG}") == "other"
    assert kind(f"{remark}\nstep 1 | loss: 3.2\n{FRAMES}KeyError: 'nan'\n") == "other"
    assert kind(f"{remark}\n{FRAMES}torch.OutOfMemoryError: CUDA out of memory.\n") == "oom"


@pytest.mark.parametrize("remark", REMARKS[:6])
def test_a_remark_of_a_device_or_a_module_explains_nothing_once_the_script_has_said_more(remark: str) -> None:
    assert kind(f"{remark}\nthe shapes do not fit\n") == "other"
    assert kind(f"{BUG}{remark}\n") == "other"


DEVICES = (
    f"{FRAMES}RuntimeError: No CUDA GPUs are available\n",
    f"{FRAMES}RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be\n",
    f"{FRAMES}torch.AcceleratorError: CUDA error: all CUDA-capable devices are busy or unavailable\n",
    "CUDA error: no CUDA-capable device is detected",
)
NATIVE = (
    *(("Segmentation fault (core dumped)", -11), ("step 3", -11), ("step 3", 139)),
    ("train: model.cpp:31: Assertion `n > 0' failed.\nAborted (core dumped)", -6),
    ("terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::at", -6),
    ("thread 'main' panicked at src/main.rs:3", 101),
)
KILLS = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.",
    "Out of memory: Killed process 31 (python) total-vm:8000kB",
    "Memory cgroup out of memory: Killed process 31 (python)",
    "reason: OOMKilled",
)
OF_CODE = (
    "IndexError: list index out of range",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 135168",
    "RuntimeError: CUDA error: device-side assert triggered",
    "KeyError: 'out_of_memory_policy'",
    "AttributeError: module 'torch.cuda' has no attribute 'OutOfMemoryError'",
)
LAST = [
    (f"{BUG}{HANDLING}{FRAMES}torch.OutOfMemoryError: CUDA out of memory.", "oom"),
    (f"{FRAMES}torch.OutOfMemoryError: CUDA out of memory.{HANDLING}{FRAMES}KeyError: 1", "other"),
    (f"{BUG}Exception ignored in: <function F.__del__>\n{FRAMES}ImportError: sys.meta_path is None", "other"),
    (f"Exception in thread Thread-1:\n{FRAMES}MemoryError\nstep 3\n", "oom"),
    (f"Exception in thread Thread-1:\n{FRAMES}MemoryError\n{BUG}", "other"),
    (
        f"[rank0]: {FRAMES.replace(chr(10), chr(10) + '[rank0]: ')}torch.OutOfMemoryError: CUDA out of memory.\n"
        f"{FRAMES}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n",
        "oom",
    ),
    (
        f"{FRAMES}RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed. {HANDLING}"
        f"{FRAMES}RuntimeError: DataLoader worker (pid(s) 31) exited unexpectedly\n",
        "oom",
    ),
    ("╭── Traceback (most recent call last) ──╮\n│ train.py:3 in f │\n╰───╯\nMemoryError\n", "oom"),
    (
        "  + Exception Group Traceback (most recent call last):\n  |   File\n"
        "  | ExceptionGroup: x (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File\n"
        "    | MemoryError\n    +------------------------------------\n",
        "oom",
    ),
    (f"\x1b[31m{FRAMES}\x1b[0m\x1b[1mMemoryError\x1b[0m\n", "oom"),
    ("loss: nan, skipped\nstep 4 | loss: 3.2\n", "other"),
    (f"{FRAMES}AssertionError: loss is nan\n", "nan"),
    (f"{FRAMES}FloatingPointError: invalid value (nan) encountered in jit(step)\n", "nan"),
]


@pytest.mark.parametrize(
    ("log", "returncode", "expected"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1, "oom"),
        ("Traceback\nMemoryError", 1, "oom"),
        ("ModuleNotFoundError: No module named 'torch'", 1, "import"),
        ("OSError: [Errno 28] No space left on device", 1, "disk"),
        ("step 3 | loss: nan\nFAIL", 1, "nan"),
        (
            "\rstep 00002 (0.1%) | loss: 9.1 | dt: 20ms    \rstep 00003 (0.2%) | loss: 101.2 | dt: 20ms    FAIL\n",
            1,
            "nan",
        ),
        ("FAIL: test_shapes", 1, "other"),
        ("RuntimeError: No CUDA GPUs are available", 1, "infra"),
        *(("", 1, "other"), ("", -9, "killed"), ("CUDA out of memory", -15, "killed")),
        *(("done", 0, "no_metrics"), ("step 3 | loss: nan", 0, "nan")),
        *(("the financial loss: nancy", 0, "no_metrics"), ("", None, "infra")),
        ("ImportError: no flash attention, using the slow one\nstep 1\nCUDA out of memory", 1, "oom"),
        *(
            (f"cuInit: no CUDA-capable device is detected\n{end}\n", status, "other")
            for end, status in NATIVE
        ),
        (
            "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: no CUDA-capable"
            " device is detected\nframe #0: 0x7f\nframe #1: 0x7f\n",
            -6,
            "infra",
        ),
        *((log, 1, "infra") for log in DEVICES),
        *((f"step 1\n{line}\n", status, "oom") for line in KILLS for status in (-9, 137)),
        *((f"{FRAMES}{line}\n", 1, "other") for line in OF_CODE),
        *((log, 1, kind) for log, kind in LAST),
    ],
)
def test_the_last_exception_and_the_exit_status_decide(
    log: str, returncode: int | None, expected: str
) -> None:
    assert kind(log, returncode) == expected


def test_a_time_limit_or_a_metric_that_is_no_number_is_the_reason_whatever_was_printed() -> None:
    assert classify_failure(BUG, 1, metrics={"val_bpb": math.nan}) == "nan"
    assert classify_failure("CUDA out of memory", -9, timed_out=True, metrics={}) == "timeout"


OUT_OF_MEMORY = [
    # PyTorch, by device
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "RuntimeError: CUDA error: out of memory",
    "RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError: MPS backend out of memory (MPS allocated: 18.0 GB)",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: DataLoader worker (pid 31) is killed by signal: Killed.",
    "RuntimeError: DataLoader worker (pid 31) is killed by signal: Bus error. It is possible that",
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    "RuntimeError: unable to write to file </torch_31_12_0>: No space left on device (28)",
    # other frameworks
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
    "ResourceExhaustedError: OOM when allocating tensor with shape[4096,4096]",
    "InternalError: Failed copying input tensor from CPU:0 to GPU:0: Dst tensor is not initialized.",
    "RuntimeError: [METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUOutOfMemory)",
    "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "ValueError: No available memory for the cache blocks.",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 100 MiB on device 0: cudaMalloc failed: out of memory",
    # the host
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array",
    "MemoryError",
    "OSError: [Errno 12] Cannot allocate memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "memory allocation of 8589934592 bytes failed",
    "java.lang.OutOfMemoryError: Java heap space",
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
]


@pytest.mark.parametrize("line", OUT_OF_MEMORY)
def test_each_framework_says_in_its_words_that_memory_ran_out(line: str) -> None:
    assert kind(f"step 1 | loss: 3.2\n{line}\n") == "oom"
    assert kind(f"{FRAMES}{line}\n") == "oom"
    assert kind(f"{line}\nAborted (core dumped)\n", -6) == "oom"


@given(st.text(), st.sampled_from([None, 0, 1, -6, -9, 137]))
def test_no_log_makes_it_raise(text: str, returncode: int | None) -> None:
    assert kind(text, returncode)
    assert kind(f"{FRAMES}{text}\n{FRAMES}", returncode)


@pytest.mark.parametrize(
    "hostile",
    [
        *("grad" * 60_000, "grad\n" * 60_000, "loss nan " * 60_000, "nan " * 60_000, "A.A." * 80_000),
        *(
            "Traceback (most recent call last)" * 9_000,
            "memory allocation " * 20_000,
            "step 1 FAIL " * 30_000,
        ),
        *(("grad" * 100 + "\n") * 600, ("memory allocation " * 22 + "\n") * 600, ("A.B" * 133 + "\n") * 600),
        *(("nan " * 100 + "\n") * 600, ("loss " * 80 + "\n") * 600, "\x1b[" * 100_000, "\n" * 250_000),
    ],
    ids=range(15),
)
def test_hostile_logs_cost_no_more_than_their_length(hostile: str) -> None:
    begin = time.process_time()
    kind(hostile)
    assert time.process_time() - begin < 30  # quadratic work would take hours
