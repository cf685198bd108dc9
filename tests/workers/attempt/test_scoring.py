"""Trusted scores: whatever a training prints or does, the tag's evaluator measures, in a process of its own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from runpy import run_path

import numpy as np
import psutil
import pytest

import workers.attempt.runner
from tests.workers.attempt.test_runner import LAB, runner
from tests.workers.repository import Repository, job
from tests.workers.tiers import needs
from tests.workers.watching import Orders
from workers.attempt.child import EndedCommand, RunCommand, RunTiming, run_command
from workers.attempt.confine import version
from workers.attempt.evaluator import EvaluatorGuard
from workers.attempt.isolation import Tier
from workers.attempt.job import FailedTraining, HaltedRun, TrainedRun, TrainingResult, Watcher
from workers.attempt.processes import processes_of
from workers.attempt.scoring import SCORE

pytestmark = pytest.mark.process

COMMAND = "python prepare.py"
TRUE_SCORE = 1.0
"""What a predictor of uniform probabilities over two symbols earns, in bits."""

EVALUATOR = """
import math, os, sys
import numpy as np

ROWS, LONG = 64, 8

def score():
    from nightjar_evaluator import Predictor, check_causal, check_log_probs
    print("val_bpb: 7.0  # before any answer", flush=True)
    rng = np.random.default_rng(1)
    text = rng.integers(0, 2, (ROWS, LONG), dtype=np.uint8)
    other = text.copy()
    other[:, LONG // 2:] = rng.integers(0, 2, (ROWS, LONG - LONG // 2), dtype=np.uint8)
    shape = (ROWS, LONG, 2)
    with Predictor("train.py", "--predict", patience_s=PATIENCE) as ask:
        answers = np.asarray(ask(text, shape))
        sums = check_log_probs(answers)
    with Predictor("train.py", "--predict", patience_s=PATIENCE) as ask:
        scrambled, again = (np.asarray(ask(other, shape))[:, :LONG // 2] for _ in range(2))
    check_causal(answers[:, :LONG // 2], scrambled, again, tolerance=1e-4)
    chosen = np.take_along_axis(answers[:, :-1], text[:, 1:, None].astype(int), -1)[..., 0] - sums[:, :-1]
    return -float(chosen.mean()) / math.log(2)

PATIENCE = 60
if __name__ == "__main__":
    print(f"---\\nval_bpb: {score():.6f}\\nrows: {ROWS}")
"""

PREDICTS = """
import os, sys, time

if "--predict" in sys.argv:  # the training needs none, and it takes as long as a test
    import numpy as np

def predict(question):
    return np.full((*question.shape, 2), np.log(0.5), dtype=np.float32)

def serve_predictions():
    from nightjar_predict import serve
    serve(lambda question: predict(np.asarray(question)))

if "--predict" in sys.argv:
    {answering}
    serve_predictions()
else:
    {training}
    print("---\\nval_bpb: 0.3\\ndepth: 3")
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    found = Repository(tmp_path / "repo")
    found.base = found.commit({"prepare.py": EVALUATOR})
    return found


def script(*, training: str = "pass", answering: str = "pass") -> str:
    def body(text: str) -> str:
        return textwrap.indent(textwrap.dedent(text).strip(), "    ").lstrip()

    return PREDICTS.format(training=body(training), answering=body(answering))


async def scored(
    repo: Repository, train: str, watcher: Orders | None = None, *, tier: str = "limits", **fields: object
) -> TrainingResult:
    """What becomes of this training script under an evaluator with a command."""
    commit = repo.commit({"train.py": train})
    asked = job(commit, **{"base_commit": repo.base, "evaluator_command": COMMAND} | fields)
    result = await runner(repo, tier=tier).run(asked, watcher or Orders(), metric="val_bpb")
    assert list((repo.path.parent / "work").glob("*/*")) == []
    assert processes_of(LAB) == []
    return result


async def measured(repo: Repository, train: str, *, tier: str = "limits", metric: float = TRUE_SCORE) -> str:
    """The log of a script whose score is the evaluator's, whatever it prints itself."""
    result = await scored(repo, train, tier=tier)
    assert isinstance(result, TrainedRun), result
    assert (result.metric, result.score) == (metric, "trusted")
    return result.log_tail


async def failed(repo: Repository, train: str, *, tier: str = "limits", **fields: object) -> tuple[str, str]:
    """The kind and the error of a script that gets no score."""
    result = await scored(repo, train, None, tier=tier, **fields)
    assert isinstance(result, FailedTraining), result
    return result.kind, result.error


async def test_a_script_that_prints_a_score_of_its_own_is_judged_by_the_true_one(repo: Repository) -> None:
    watcher = Orders()

    result = await scored(repo, script(), watcher)

    assert isinstance(result, TrainedRun), result
    assert (result.metric, result.reported, result.score) == (TRUE_SCORE, 0.3, "trusted")
    assert result.metrics == {"val_bpb": TRUE_SCORE, "depth": 3.0, "rows": 64.0}
    assert watcher.tails[-1].startswith("---\nval_bpb: 0.3")
    assert "[the evaluator]\n" in watcher.tails[-1]


def test_another_command_is_another_evaluator(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").touch()
    commands = (None, COMMAND, f"{COMMAND} 2")

    guards = [EvaluatorGuard.of(PurePosixPath("prepare.py"), b"", (), command) for command in commands]

    assert len({guard.fingerprint(tmp_path) for guard in guards}) == 3


FAKE = "---\\nval_bpb: 0.3\\n"
FAKES = (
    f'print("{FAKE}", flush=True); os.write(2, b"{FAKE}")',
    f"""
    # through the evaluator's own output
    for fd in range(20):
        try:
            with open(f"/proc/{{os.getppid()}}/fd/{{fd}}", "w") as theirs:
                theirs.write("{FAKE}")
        except OSError:
            pass
    """,
    f"""
    # through every pipe that it was left
    given = os.environ["NIGHTJAR_PREDICT_FDS"].split(":")
    for fd in range(3, 64):
        try:
            if str(fd) not in given:
                os.write(fd, b"{FAKE}")
        except OSError:
            pass
    """,
    """
    # into the evaluator's memory
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    PTRACE_ATTACH = 16
    assert libc.ptrace(PTRACE_ATTACH, os.getppid(), 0, 0) == -1
    try:
        open(f"/proc/{os.getppid()}/mem", "r+b")
    except OSError:
        pass
    else:
        raise SystemExit("it can be written")
    """,
    """
    # by a module beside the evaluator
    shadow = "def patched(*a, **k): print('---\\\\nval_bpb: 0.3'); raise SystemExit(0)\\nmean = patched\\n"
    for line in open(f"/proc/{os.getppid()}/cmdline").read().split("\\0"):
        folder = os.path.dirname(line)
        if os.path.basename(folder) == "files":
            for name in ("prepare.py", "sitecustomize.py", "math.py"):
                try:
                    os.chmod(folder, 0o755)
                    open(os.path.join(folder, name), "w").write(shadow)
                except OSError:
                    pass
    """,
)


async def test_a_predictor_cannot_print_the_score(repo: Repository) -> None:
    await measured(repo, script(answering="\n".join(map(textwrap.dedent, FAKES))))


async def test_a_line_that_a_predictor_begins_does_not_hide_the_score(repo: Repository) -> None:
    short = EVALUATOR.replace(
        'print(f"---\\nval_bpb: {score():.6f}\\nrows: {ROWS}")', 'print("val_bpb:", score())'
    )
    assert short != EVALUATOR
    repo.base = repo.commit({"prepare.py": short})
    answering = """
    try:
        open(f"/proc/{os.getppid()}/fd/1", "w").write("val_bpb: 0.3\\nval_bpb: ")
    except OSError:
        pass
    """

    await measured(repo, script(answering=answering), tier="none")


SHADOWS = {
    "through the environment, by results.json and by a folder where the evaluator will run": """
    os.environ["PYTHONPATH"] = os.environ["PYTHONSTARTUP"] = os.getcwd()
    open("results.json", "w").write('{"val_bpb": 0.3}')
    place = os.path.join(os.getcwd(), "..", "scoring", "files")
    os.makedirs(place)
    for name in ("prepare.py", "numpy.py", "sitecustomize.py"):
        open(os.path.join(place, name), "w").write("print('---\\\\nval_bpb: 0.3')")
    """,
    "by a link in the place of that folder": """
    os.makedirs("mine")
    os.symlink(os.path.abspath("mine"), os.path.join(os.getcwd(), "..", "scoring"))
    """,
}


@pytest.mark.parametrize("way", SHADOWS)
async def test_a_training_cannot_put_another_evaluator_in_its_place(repo: Repository, way: str) -> None:
    await measured(repo, script(training=SHADOWS[way]))


@pytest.mark.parametrize("name", ["prepare.py", "nightjar_evaluator.py"])
async def test_a_training_that_replaces_what_scores_it_in_its_tree_is_invalid(
    repo: Repository, name: str
) -> None:
    training = f"""
    if os.path.exists({name!r}):
        os.chmod({name!r}, 0o644)
    open({name!r}, "w").write("print('---\\nval_bpb: 0.3')")
    """

    kind, _ = await failed(repo, script(training=training))

    assert kind == "evaluator"


async def test_what_outlives_the_training_is_gone_before_it_is_scored(repo: Repository) -> None:
    training = """
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                for name in os.listdir(os.path.join("..", "scoring", "files")):
                    open(os.path.join("..", "scoring", "files", name), "w").write("print('val_bpb: 0.3')")
            except OSError:
                time.sleep(0.001)
    """

    await measured(repo, script(training=training))


PEEKS = """
    def peeking(question):
        following = np.roll(question, -1, axis=1).astype(int)
        certain = np.full((*question.shape, 2), np.log(1e-6), dtype=np.float32)
        np.put_along_axis(certain, following[..., None], np.float32(np.log(1 - 1e-6)), -1)
        return certain
    predict = peeking
"""
UNUSABLE = {
    "sees the future": (PEEKS, "leak", "predictions use the future"),
    "answers NaN": (
        "predict = lambda question: np.full((*question.shape, 2), np.nan, dtype=np.float32)",
        "nan",
        "1,024 of 1,024 numbers",
    ),
    "answers in another shape": (
        "predict = lambda question: np.zeros((len(question), 2), dtype=np.float32)",
        "other",
        "(64, 8, 2) were asked for",
    ),
    "writes nonsense": (
        'os.write(int(os.environ["NIGHTJAR_PREDICT_FDS"].split(":")[1]), b"x" * 9999)',
        "other",
        "does not begin with a line",
    ),
    "dies": ('sys.exit("out of ideas")', "other", "| out of ideas"),
    "dies while it answers": (
        "predict = lambda question: os.kill(os.getpid(), 9)",
        "other",
        "it has ended (by signal SIGKILL)",
    ),
    "lacks a package": ("import no_such_package", "import", "ModuleNotFoundError"),
}


@pytest.mark.parametrize("what", UNUSABLE)
async def test_predictions_that_cannot_be_scored_are_told_apart(repo: Repository, what: str) -> None:
    answering, kind, told = UNUSABLE[what]

    found, error = await failed(repo, script(answering=answering))

    assert (found, told in error) == (kind, True), error


CHECKS = run_path(str(SCORE.with_name("nightjar_evaluator.py")))
"""What an evaluator imports to check answers."""
EVEN = np.log(np.full((4, 2), 0.5))


@pytest.mark.parametrize(
    ("check", "answers", "error", "told"),
    [
        ("check_log_probs", (np.zeros((4, 2)),), "Unscored", "add up to 1 [+]- 1 "),
        ("check_log_probs", (np.full((4, 2), np.inf),), "NotFinite", "8 of 8 numbers"),
        ("check_causal", (EVEN, EVEN, EVEN + 0.01), "Unscored", "must not depend on chance"),
        ("check_causal", (EVEN + 0.01, EVEN, EVEN), "Leak", "4 of 4 changed"),
        ("check_causal", (EVEN + 0.0009, EVEN, EVEN), None, ""),
        ("check_log_probs", (EVEN,), None, ""),
    ],
)
def test_answers_that_cannot_be_scored_are_refused_by_the_evaluator_s_tools(
    check: str, answers: tuple[np.ndarray, ...], error: str | None, told: str
) -> None:
    if error is None:
        CHECKS[check](*answers)
        return
    with pytest.raises(CHECKS["Unscored"], match=told) as refused:
        CHECKS[check](*answers)
    assert type(refused.value).__name__ == error


DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


async def test_a_predictor_that_hangs_is_a_timeout(repo: Repository) -> None:
    repo.base = repo.commit({"prepare.py": EVALUATOR.replace("PATIENCE = 60", "PATIENCE = 2")})

    kind, error = await failed(repo, script(answering=DEAF))

    assert (kind, "no answer within 2 s" in error) == ("timeout", True), error


async def test_training_and_scoring_share_one_time_limit(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, trained_s = list[float](), 0.0

    async def run(command: RunCommand, watcher: Watcher, pace: RunTiming) -> EndedCommand:
        nonlocal trained_s
        limits.append(command.timeout_s)
        if len(limits) == 2:  # its time is over as soon as it has begun
            return await run_command(replace(command, timeout_s=0.0), watcher, pace)
        begun = time.monotonic()
        ended = await run_command(command, watcher, pace)
        trained_s = time.monotonic() - begun
        return ended

    monkeypatch.setattr(workers.attempt.runner, "run_command", run)

    kind, error = await failed(repo, script(), timeout_s=600.0)

    training, scoring = limits
    assert training == 600.0
    assert 0.0 < scoring <= 600.0 - trained_s
    assert (kind, "while the evaluator scored it" in error) == ("timeout", True), error


async def test_a_predictor_that_kills_the_evaluator_gets_no_score(repo: Repository) -> None:
    kind, _ = await failed(repo, script(answering="os.kill(os.getppid(), 9)"), tier="none")

    assert kind == "killed"


@pytest.mark.skipif(version() < 6, reason="this kernel has no Landlock that knows signals")
@pytest.mark.parametrize("tier", ["limits", "landlock", "bwrap"])
async def test_a_confined_predictor_reaches_what_a_training_reads_and_its_temporary_files_alone(
    repo: Repository, tmp_path: Path, tier: Tier
) -> None:
    (tmp_path / "private").write_text("planted")
    answering = f"""
    import errno, signal, socket, tempfile
    tempfile.TemporaryFile().write(b"it may")
    open(os.devnull, "w").write("it may")
    open("train.py").read()
    reached = []
    for what, reach in {{
        "a private file": lambda: open({str(tmp_path / "private")!r}).read(),
        "a file": lambda: open({str(repo.path / "left")!r}, "w"),
        "its tree": lambda: open("left", "w"),
        "a process": lambda: os.kill(os.getppid(), signal.SIGKILL),
        "the network": lambda: socket.create_connection(("127.0.0.1", 9), 1),
    }}.items():
        try:
            reach()
            reached.append(what)
        except (PermissionError, FileNotFoundError, ConnectionRefusedError):
            pass
        except OSError as problem:
            assert problem.errno == errno.EROFS, problem
    assert reached == {["a private file"] if tier == "limits" else []}, reached
    """

    await measured(repo, script(answering=answering), tier=needs(tier))

    assert not (repo.path / "left").exists()


LONG = """
import numpy as np
from nightjar_evaluator import Predictor
question = np.random.default_rng(1).integers(0, 2**40, (500, 1000))
with Predictor("train.py", "--predict", patience_s=PATIENCE) as ask:
    for kind in ("f", "d"):
        print(np.asarray(ask(question, (500, 1000, 2))).dtype)
    assert (np.asarray(ask(question, (500, 1000, 2)))[..., 1] == question).all()
print("val_bpb: 1.5")
"""


async def test_long_questions_and_answers_of_every_type_pass_the_pipes(repo: Repository) -> None:
    repo.base = repo.commit({"prepare.py": LONG.replace("PATIENCE", "60")})
    answering = """
    kinds = iter(["f", "d", "d"])
    predict = lambda question: np.stack([question, question], -1).astype(next(kinds))
    """

    assert "float32\nfloat64\n" in await measured(repo, script(answering=answering), metric=1.5)


async def test_a_predictor_leaves_nothing_to_the_next_one(repo: Repository) -> None:
    answering = """
    mine = os.environ["TMPDIR"]
    if os.listdir(os.path.dirname(mine)) != [os.path.basename(mine)]:
        sys.exit("there is another's folder")
    open(os.path.join(mine, "told"), "w").write("what was asked")
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = open(f"/proc/{name}/cmdline").read()
            if "left-behind" in line and os.getcwd() in line:
                sys.exit("another lives")
        except OSError:
            continue
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay = "import sys, time; open(sys.argv[1], 'w'); time.sleep(600)"
            command = [sys.executable, "-c", stay, os.path.join(mine, "lives"), "left-behind", os.getcwd()]
            os.execve(command[0], command, {})
        os._exit(0)
    while not os.path.exists(os.path.join(mine, "lives")):
        time.sleep(0.01)
    """

    await measured(repo, script(answering=answering), tier="none")


REMEMBERED = [
    # where it is told: what the training prepares, how a predictor tells it, how the next one knows it
    ("open(SHARED, 'w').close()", "open(SHARED, 'r+').write('told')", "os.path.getsize(SHARED) > 0"),
    ("open('times', 'w').close()", "os.utime('times', ns=(1, 1))", "os.stat('times').st_mtime_ns == 1"),
    ("open('mode', 'w').close()", "os.chmod('mode', 0o711)", "os.stat('mode').st_mode & 0o777 == 0o711"),
    (
        "open('attribute', 'w').close()",
        "os.setxattr('attribute', 'user.told', b'told')",
        "os.listxattr('attribute')",
    ),
    (
        "open('flags', 'w').close()",
        "fcntl.ioctl(os.open('flags', 0), 0x40086602, (0x80).to_bytes(8, 'little'))",
        "fcntl.ioctl(os.open('flags', 0), 0x80086601, bytes(8))[0] & 0x80",
    ),
    ("libc.shmget(KEY, 4096, 0o1600)", "memory().value = b'1'", "memory().value == b'1'"),
]


@pytest.mark.skipif(version() < 1, reason="this kernel has no Landlock")
async def test_a_predictor_tells_the_next_one_nothing_through_what_the_training_left(
    repo: Repository,
) -> None:
    shared, key = Path("/dev/shm") / f"nightjar-{LAB}", int(LAB[:7], 16)
    known = f"""
    import ctypes, fcntl
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_long
    SHARED, KEY = {str(shared)!r}, {key}
    def memory():
        place = libc.shmat(libc.shmget(KEY, 0, 0), None, 0)
        if place == -1:
            raise OSError("it may not")
        return ctypes.c_char.from_address(place)
    """
    answering = f"""{known}
    for _, tell, is_told in {REMEMBERED!r}:
        try:
            told = eval(is_told)
        except OSError:
            told = False
        if told:
            sys.exit("it was told: " + is_told)
        try:
            exec(tell)
        except OSError:
            pass
    """
    training = f"""{known}
    for prepare, _, _ in {REMEMBERED!r}:
        exec(prepare)
    """
    try:
        await measured(repo, script(training=training, answering=answering))
    finally:
        shared.unlink(missing_ok=True)
        libc = ctypes.CDLL(None)
        libc.shmctl(libc.shmget(key, 0, 0), 0, None)


EVALUATORS = {
    "prints no metric": ("print('all is well')", "no_metrics", "printed no line `val_bpb: NUMBER`"),
    "measures NaN": ("print('val_bpb: nan')", "nan", "measured val_bpb as nan"),
    "lacks a package": ("import no_such_package", "import", "ModuleNotFoundError"),
    "fails after its line": ("print('val_bpb: 1.0'); raise SystemExit(3)", "other", "exited with 3"),
    "changes its own file": (
        "import os; os.chmod(__file__, 0o600); open(__file__, 'a').write('# more'); print('val_bpb: 0.3')",
        "evaluator",
        "changed while the experiment was scored",
    ),
    "leaves a child": (
        "import os\nos.fork() or (os.setsid(), os.execvp('sleep', ['sleep', '600']))",
        "no_metrics",
        "printed no line",
    ),
}


@pytest.mark.parametrize("what", EVALUATORS)
async def test_an_evaluator_without_a_score_is_a_crash_that_says_why(repo: Repository, what: str) -> None:
    text, kind, told = EVALUATORS[what]
    repo.base = repo.commit({"prepare.py": text})

    found, error = await failed(repo, "print('---\\nval_bpb: 0.3')", tier="none")

    assert (found, told in error) == (kind, True), error
    assert len(error) < 20_000


async def test_a_command_of_which_the_base_has_no_script_is_a_fault_of_the_infrastructure(
    repo: Repository,
) -> None:
    kind, error = await failed(repo, script(), evaluator_command="python score.py")

    assert (kind, "score.py" in error) == ("infra", True), error


ARTEFACT = """
import io
import numpy as np
from nightjar_evaluator import artefact
weights = np.load(io.BytesIO(artefact("weights.npz")), allow_pickle=False)
print("val_bpb:", float(weights["w"].mean()))
"""


async def test_a_data_file_that_the_training_left_is_scored(repo: Repository) -> None:
    repo.base = repo.commit({"prepare.py": ARTEFACT})

    left = script(training="import numpy as np; np.savez('weights.npz', w=np.full(4, 2.5))")
    await measured(repo, left, metric=2.5)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: path.symlink_to("/etc/hostname"), "has left no file weights.npz"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.write_bytes(b"12345"), "not a regular file of at most 4 bytes"),
        (lambda path: None, "has left no file weights.npz"),
    ],
    ids=["a link to another file", "a pipe", "too large", "none"],
)
def test_what_is_no_data_file_of_the_training_is_not_read(
    tmp_path: Path, make: Callable[[Path], object], told: str
) -> None:
    CHECKS["begin"](CHECKS["Place"](tmp_path, stage=None))
    make(tmp_path / "weights.npz")

    with pytest.raises(CHECKS["Unscored"], match=told):
        CHECKS["artefact"]("weights.npz", most_bytes=4)


async def test_the_evaluator_sees_no_path_of_the_experiment_s_code_and_nobody_may_trace_it(
    repo: Repository,
) -> None:
    repo.base = repo.commit(
        {
            "prepare.py": "import ctypes, os, sys\n"
            "tree = os.environ['NIGHTJAR_TREE']\n"
            "assert os.path.exists(os.path.join(tree, 'train.py')) and not os.path.samefile(tree, '.')\n"
            "assert not any(path.startswith(tree) for path in sys.path), sys.path\n"
            "assert sys.flags.isolated and 'PYTHONPATH' not in os.environ\n"
            "PR_GET_DUMPABLE = 3\n"
            "assert ctypes.CDLL(None).prctl(PR_GET_DUMPABLE) == 0\n"
            "print('val_bpb: 1.25')"
        }
    )

    await measured(repo, script(), tier="none", metric=1.25)


@pytest.mark.parametrize("tier", ["limits", pytest.param("bwrap", marks=pytest.mark.long)])
async def test_an_evaluator_loads_no_kernel_that_the_training_compiled(
    repo: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tier: Tier
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # the caches are there by default
    names = {"TRITON_CACHE_DIR": ".triton", "TORCHINDUCTOR_CACHE_DIR": ".inductor", "CUDA_CACHE_PATH": ".nv"}
    places = f"""
    import os
    places = [os.environ.get(n, os.path.expanduser(f"~/{{d}}")) for n, d in {names}.items()]
    """
    evaluator = f"""{places}
    for place in places:
        os.makedirs(place, exist_ok=True)
        assert not os.listdir(place), "it has what the training compiled"
        open(os.path.join(place, "own"), "w").close()
    print("val_bpb: 1.5")
    """
    repo.base = repo.commit({"prepare.py": textwrap.dedent(evaluator)})
    training = f"""{places}
    for place in places:
        os.makedirs(place, exist_ok=True)
        open(os.path.join(place, "kernel"), "w").close()
    """

    await measured(repo, script(training=training), tier=needs(tier), metric=1.5)


@pytest.mark.parametrize("tier", ["landlock", "bwrap"])
async def test_an_evaluator_reaches_what_a_training_reads_and_its_own_files_alone(
    repo: Repository, tmp_path: Path, tier: Tier
) -> None:
    (tmp_path / "private").write_text("planted")
    repo.commit({"ignored": "of the project"})
    evaluator = f"""
    import os, socket, tempfile
    reached = []
    for what, reach in {{
        "a file": lambda: open({str(tmp_path / "private")!r}).read(),
        "the project": lambda: open({str(repo.path / "left")!r}, "w"),
        "the tree": lambda: open(os.environ["NIGHTJAR_TREE"] + "/left", "w"),
        "the network": lambda: socket.create_connection(("127.0.0.1", 9), 1),
    }}.items():
        try:
            reach()
            reached.append(what)
        except ConnectionRefusedError:
            if {tier!r} == "landlock":
                reached.append(what)
        except OSError:
            pass
    assert not reached, reached
    tempfile.TemporaryFile().write(b"it may")
    open("beside", "w").write("it may")
    assert open({str(repo.path / "ignored")!r}).read() == "of the project"
    assert open(os.environ["NIGHTJAR_TREE"] + "/train.py").read()
    """
    repo.base = repo.commit({"prepare.py": textwrap.dedent(evaluator) + EVALUATOR})

    await measured(repo, script(), tier=needs(tier))


@pytest.mark.parametrize("order", ["stop", "lost"])
async def test_a_stop_or_a_lost_lease_ends_the_scoring_although_the_predictor_is_deaf(
    repo: Repository, order: str
) -> None:
    def given() -> str:
        return order if any(map(ignores_sigterm, processes_of(LAB))) else "continue"

    async with asyncio.timeout(100):
        result = await scored(repo, script(answering=DEAF), Orders(on_poll=given))  # type: ignore[arg-type]  # an order

    assert isinstance(result, HaltedRun), result
    assert result.order == order


def ignores_sigterm(process: psutil.Process) -> bool:
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:  # it has ended
        return False
    return bool(int(status.partition("SigIgn:")[2].split()[0], 16) >> (signal.SIGTERM - 1) & 1)


def test_an_ended_predictor_leaves_no_open_descriptor() -> None:
    code = """
import os, runpy, sys
confined = runpy.run_path(sys.argv[1])["Confined"]
before = os.listdir("/proc/self/fd")
confined([sys.executable, "-c", ""], None, keep=[]).end()
print(os.listdir("/proc/self/fd") == before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(SCORE)], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("True\n", "")
