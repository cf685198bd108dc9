"""The paths that a script's text names, whatever builds them."""

from __future__ import annotations

import pytest

from functions.kernel.process.run_files import LONGEST_TEXT, is_write, strings_of, strings_read


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('open("data/train.bin", "rb")', "data/train.bin"),
        ("np.memmap(os.path.join('data', dataset, 'train.bin'))", "data"),
        *(('Path(__file__).parent / "data" / split', "data"), ('f"data/{split}.bin"', "data/{split}.bin")),
        *(('f"{HERE}/data/{split}.bin"', "data/{split}.bin"), ("path: data/train.bin", "data/train.bin")),
        ("path: ${hydra:runtime.cwd}/data/raw", "data/raw"),
        *(("python train.py --data $ROOT/data/x", "data/x"), ('f"data/{name}/x.bin"', "data/x.bin")),
        *(("$HOME/data/x", "~/data/x"), ("root: data\nseed: 1", "data")),
        ("cmd = '''cat ~/data/train.bin'''", "~/data/train.bin"),
        ("FileNotFoundError: ../data/train.bin not found", "../data/train.bin"),
        ("[Errno 13] Permission denied: '/data/my set/x.bin'", "/data/my set/x.bin"),
    ],
)
def test_a_path_is_found_whatever_builds_it(text: str, path: str) -> None:
    assert path in {*strings_of(text)}


@pytest.mark.parametrize("text", ["a", "'", "a/", "\"b'", "~/.", ": a ", "= "])
def test_a_text_that_is_made_to_be_slow_is_read_all_the_same(text: str) -> None:
    assert len([*strings_of(text * LONGEST_TEXT)]) <= LONGEST_TEXT + 1
    assert len([*strings_read(text * LONGEST_TEXT)]) <= LONGEST_TEXT + 1


WRITTEN = (
    *("open('x/log.txt', 'w')", "torch.save(model.state_dict(), 'x/last.pt')", "model.save_pretrained('x')"),
    *("df.to_csv('x/predictions.csv')", "os.makedirs('x', exist_ok=True)", "Path('x').mkdir()"),
    *("SummaryWriter('x/exp')", "logging.FileHandler('x/train.log')", "out_dir = 'x'"),
    *("OUTPUT_DIR: str = 'x'", "log_dir = os.path.join('x', name)"),
    *("parser.add_argument('--save-dir', type=str, default='x')", "Trainer(output_dir='x')"),
    *("save_dir: x/y", "outs: [x/model.pkl]"),
)
READ = (
    *("open('x/log.txt')", "open('x/train.bin', 'rb')", "np.memmap('x/train.bin', dtype='u2', mode='r')"),
    *("checkpoint = torch.load('x/base.pt')", "result = load('x/a.npy')"),
    *("transforms.to_tensor(np.load('x/a.npy'))", "parser.add_argument('--data-dir', default='x')"),
    *("layout = 'x'", "data_dir: x/y"),
)


@pytest.mark.parametrize("line", WRITTEN)
def test_a_line_that_names_what_a_run_writes_names_no_data(line: str) -> None:
    assert is_write(line)
    assert [*strings_read(f"{line}\n'data'")] == ["data"]


@pytest.mark.parametrize("line", READ)
def test_a_line_that_reads_names_data(line: str) -> None:
    assert not is_write(line)
