"""Why a run failed, by its exit status and the last exception or error in its log.

Earlier remarks do not count: libraries warn of devices, memory and modules that the script then does without.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from functions.formats.metrics_block import EVIDENCE_CHARACTERS, LONGEST_LINE, FailureKind, without_controls

_KILLED = {-9, -15, 128 + 9, 128 + 15}
"""KILL and TERM as Python and as a shell say it."""
_ABORTED = {-6, 128 + 6}
_DUMPED = 20
"""Lines that an aborted process may print after its reason, such as its stack."""


def classify_failure(
    log: str, returncode: int | None, *, timed_out: bool = False, metrics: Mapping[str, float]
) -> FailureKind:
    """Kind of failure of a run without a usable metric; `metrics` are those that it printed."""
    if timed_out:
        return "timeout"
    if returncode is None:
        return "infra"
    text = log[-EVIDENCE_CHARACTERS:]
    if returncode in _KILLED:
        return "oom" if _OOM_KILLER.search(text) else "killed"
    if any(not math.isfinite(value) for value in metrics.values()):
        return "nan"
    found = _Explanation.of(text).kind(patience=_DUMPED if returncode in _ABORTED else 0)
    if returncode == 0:
        return "nan" if found == "nan" else "no_metrics"
    return found


@dataclass
class _Explanation:
    """Evidence in the lines of a log, in their order; the last counts."""

    end: FailureKind | None = None
    """By the last exception, or a later error that only the script's own work can meet."""
    remark: FailureKind | None = None
    """Of a device or a module: it counts where nothing else explains the end, and little was said after it."""
    lines_after_remark: int = 0

    @classmethod
    def of(cls, text: str) -> _Explanation:
        found = cls()
        for said, is_end in _statements(text):
            found._hear(said, is_end=is_end)
        return found

    def kind(self, *, patience: int) -> FailureKind:
        if self.end is None and self.remark is not None and self.lines_after_remark <= patience:
            return self.remark
        return self.end or "other"

    def _hear(self, line: str, *, is_end: bool) -> None:
        kind = _kind_in(line)
        self.lines_after_remark += 1
        if is_end and _PASSES_ON.match(line):
            return  # it hands on what came before
        if is_end or kind in ("oom", "disk", "nan"):
            self.end = kind or "other"
        elif kind is not None:
            self.remark, self.lines_after_remark = kind, 0
        elif _ASSERTED.search(line):
            self.remark = None
        elif self.end == "nan" and _GOES_ON.search(line):
            self.end = None


def _statements(text: str) -> Iterator[tuple[str, bool]]:
    """Each line outside the frames of tracebacks, and whether it is an exception that may have ended the run.

    Exceptions that Python ignores, or that a thread or a logger reports, end none.
    """
    margin: str | None = None
    is_survived, before = False, ""
    for raw in re.split(r"[\r\n]", text):
        line = without_controls(raw[: 4 * LONGEST_LINE])[:LONGEST_LINE]
        if not line.strip():
            continue
        begin = line.find(_TRACEBACK)
        if begin >= 0:
            margin, is_survived = line[:begin], _SURVIVED.search(before) is not None
        elif margin is None:
            # without a traceback it may be a remark: of these kinds it often is
            yield line, _EXCEPTION.match(line) is not None and _kind_in(line) not in ("import", "infra")
        else:
            own = line.removeprefix(margin)
            if own[:1] not in _FRAME:
                yield own, not is_survived
                margin = None
        before = line


_TRACEBACK = "Traceback (most recent call last)"
_FRAME = frozenset(" \t│╭╰|+")
"""First characters of the lines of a traceback above the exception."""
_SURVIVED = re.compile(
    r"Exception ignored in|Exception in thread|Logging error|_run_exitfuncs|exception was never retrieved"
)
_EXCEPTION = re.compile(
    r"(?:\[[^\]]{1,40}\]:?\s*)?(?:[A-Za-z_]\w{0,60}\.){0,10}[A-Z]\w{0,60}(?:Error|Exception|Interrupt)(?=:|\s*\Z)"
)
_PASSES_ON = re.compile(
    r"[\w.]{0,120}(?:ChildFailedError|ProcessRaisedException|ProcessExitedException|CalledProcessError|RayTaskError"
    r"|BrokenProcessPool|WorkerCrashedError)\b"
    r"|RuntimeError: DataLoader worker \(pid\(s\) [\d, ]{1,99}\) exited unexpectedly"
)
"""Exceptions that say only that another process has failed."""
_ASSERTED = re.compile(
    r"Assertion .{1,300} failed|terminate called|what\(\):|Fatal Python error|double free|\bpanicked at\b"
)
"""How native code says why it aborts."""
_GOES_ON = re.compile(r"\bloss\s{0,3}[:=]?\s{0,3}[+-]?[0-9]", re.IGNORECASE)
"""A loss that is a number again: the script has got over the one that was not."""

_OOM_KILLER = re.compile(
    r"oom[-_ ]?kill|out of memory: kill|detected \d+ oom|task \d+: out of memory", re.IGNORECASE
)
_CONSTANT = re.compile(r"\bnightjar\.ConstantError: ")
"""What `nightjar_constants.py` says."""
_KINDS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    (
        "infra",
        re.compile(
            r"no (?:CUDA|ROCm|HIP)-capable device|Found no NVIDIA driver|(?:CUDA|HIP) driver version is insufficient"
            r"|Driver/library version mismatch|uncorrectable (?:ECC|NVLink)"
            r"|(?:CUDA|HIP)-capable device\(s\) (?:is/)?are busy|all (?:CUDA|HIP)-capable devices are busy"
            r"|GPU is lost|fallen off the bus|No (?:CUDA GPUs|HIP GPUs|XPU devices) are available"
            r"|CUDA_ERROR_(?:NO_DEVICE|ECC_UNCORRECTABLE|SYSTEM_DRIVER_MISMATCH|SYSTEM_NOT_READY|DEVICE_UNAVAILABLE)"
            r"|hipErrorNoDevice|cudaErrorNoDevice|cudaErrorDevicesUnavailable|cudaErrorInsufficientDriver"
            r"|\berror 80[234]: |Unexpected error from cudaGetDeviceCount"
            r"|Failed to initialize NVML|NVML_ERROR|NVIDIA-SMI has failed",
            re.IGNORECASE,
        ),
    ),
    (
        "oom",
        re.compile(
            r"\bout of (?:\w{1,12} ){0,2}memory\b|out[_-]of[_-](?:\w{1,12}[_-])?memory|OutOf\w{0,12}Memory"
            r"|RESOURCE_EXHAUSTED|ResourceExhaustedError|\bOOM when\b|\bMemoryError\b|\w{1,12}MemoryError\b"
            r"|ERROR_OUT_OF_RESOURCES|ALLOC_FAILED|MemoryAllocation\b|memory_error|bad_alloc"
            r"|(?:cannot|can't|unable to|failed to|could not) (?:allocate|alloc|mmap)\b"
            r"|memory allocation .{0,60}failed|allocation failed|malloc of size|not enough memory|insufficient memory"
            r"|insufficient shared memory|running low on memory|No available memory"
            r"|Dst tensor is not initialized|metal::malloc"
            r"|is killed by signal: (?:Killed|Bus error)|SIGKILL\(-9\)"
            r"|unable to write to file </torch_|unable to allocate shared memory|oom[-_ ]?kill",
            re.IGNORECASE,
        ),
    ),
    (
        "disk",
        re.compile(
            r"No space left on device|Disk quota exceeded|\[Errno (?:27|28|122)\]|File too large",
            re.IGNORECASE,
        ),
    ),
)
_IMPORT = re.compile(r"\b(?:ModuleNotFoundError|ImportError)\b")
_OF_CODE = re.compile(
    r"(?:\w{1,60}\.){0,9}(?:Attribute|Index|Indentation|Key|Name|Syntax|Type|UnboundLocal)Error\b"
)
"""Exceptions whose message quotes names of the script: nothing is to be read from those."""
_GIVEN_UP = re.compile(r"\A(?:step\s+\d+\b.*)?\bFAIL\s*\Z", re.ASCII)
"""How the reference script ends a run whose loss is NaN or explodes: the word alone, or behind a progress line."""
_NOT_FINITE = re.compile(r"(?<![a-z])[+-]?(?:nan|inf|infinity)(?![a-z])", re.IGNORECASE)
_LOSS_BEFORE = re.compile(
    r"(?:loss|grad|val_|perplexity|bpb)\w{0,40}[ \t]{0,9}(?:[:=]|\bis\b)?[ \t]{0,9}(?:(?:became|is)[ \t]{1,9})?\Z",
    re.IGNORECASE,
)
_NUMERIC = re.compile(
    r"(?:[\w.]{0,60}\.)?(?:FloatingPointError|ValueError|RuntimeError|AssertionError|ArithmeticError|OverflowError)\b"
)


def _kind_in(line: str) -> FailureKind | None:
    """The kind of failure that a line speaks of."""
    if _CONSTANT.search(line):
        return "constant"
    if _OF_CODE.match(line):
        return None
    if _IMPORT.search(line):
        return "import"
    for kind, pattern in _KINDS:
        if pattern.search(line):
            return kind
    return "nan" if _is_not_finite(line) else None


def _is_not_finite(line: str) -> bool:
    """Whether a loss, a gradient or the metric is not finite, or the script gave up for that."""
    if _GIVEN_UP.search(line):
        return True
    is_of_numbers = _NUMERIC.match(line) is not None
    return any(
        is_of_numbers or _LOSS_BEFORE.search(line[max(0, found.start() - 80) : found.start()])
        for found in _NOT_FINITE.finditer(line)
    )
