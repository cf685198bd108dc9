"""The file that a train command runs is read from its words; where they do not say it, nothing is guessed."""

from __future__ import annotations

import shlex

import pytest

from functions.formats.train_command import scripts_of


def test_without_a_command_it_is_train_py() -> None:
    assert scripts_of(None) == scripts_of(()) == ("train.py",)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python main.py", "main.py"),
        ("python3 -u src/train.py --lr 1", "src/train.py"),
        ("/usr/bin/python3.12 -X dev -Werror ./src//train.py", "src/train.py"),
        ("python -W error -OO train", "train"),
        ("./run.py --fast", "run.py"),
        ("env A=1 B=x.py python x.py", "x.py"),
        ("env -u HOME CUDA_LAUNCH_BLOCKING=1 nice -n 5 python x.py", "x.py"),
        ("timeout 60 python x.py", "x.py"),
        ("torchrun --nproc_per_node 1 train.py", "train.py"),
        (
            "torchrun --standalone --nproc_per_node=2 scripts/pretrain.py --config other.py",
            "scripts/pretrain.py",
        ),
        ("python -m torch.distributed.run --nproc_per_node=1 main.py --x", "main.py"),
        ("accelerate launch --config_file a.yaml train.py", "train.py"),
        ("accelerate launch --mixed_precision bf16 src/fit.py", "src/fit.py"),
        ("deepspeed --num_gpus 1 fit.py --deepspeed cfg.json", "fit.py"),
        ("uv run train.py", "train.py"),
        ("uv run --with numpy python -u train.py", "train.py"),
        *(("poetry run python src/main.py", "src/main.py"), ("conda run -n ml python fit.py", "fit.py")),
        *(("mpirun -np 1 python fit.py", "fit.py"), ("python -m cProfile -o out.prof fit.py", "fit.py")),
        ("coverage run fit.py", "fit.py"),
    ],
)
def test_the_script_is_found_behind_launchers_and_options(command: str, script: str) -> None:
    assert scripts_of(shlex.split(command))[0] == script


@pytest.mark.parametrize(
    ("command", "scripts"),
    [
        ("python -m pkg.mod --x 1", ("pkg/mod/__main__.py", "pkg/mod.py")),
        ("python -um train", ("train/__main__.py", "train.py")),
        ("python -mtrain", ("train/__main__.py", "train.py")),
        ("torchrun --nproc_per_node 1 -m pkg.mod", ("pkg/mod/__main__.py", "pkg/mod.py")),
        ("accelerate launch --module pkg.mod", ("pkg/mod/__main__.py", "pkg/mod.py")),
        ("uv run -m pkg", ("pkg/__main__.py", "pkg.py")),
        (
            "env PYTHONPATH=src:/opt/x python -m fit",
            ("fit/__main__.py", "fit.py", "src/fit/__main__.py", "src/fit.py"),
        ),
        ("python .", ("__main__.py",)),
        ("python app", ("app", "app/__main__.py")),
    ],
)
def test_a_module_or_a_folder_may_be_one_of_several_files(command: str, scripts: tuple[str, ...]) -> None:
    assert scripts_of(shlex.split(command)) == scripts


@pytest.mark.parametrize(
    "command",
    [
        *("bash run.sh", "sh -c 'python train.py'", "make train", "./run", "fit"),
        *("docker run image python x.py", "python -c 'print(1)'", "python -", "python", "python -m"),
        *("torchrun", "uv run fit", "env bash go.sh a.py", "python /srv/train.py", "python ../train.py"),
        *("python -m pkg-mod", "ssh host python train.py", "env -C src python train.py"),
        *("uv run --directory src train.py", "conda run --cwd=src python x.py"),
    ],
)
def test_what_the_words_do_not_say_is_not_known(command: str) -> None:
    assert scripts_of(shlex.split(command)) == ()
