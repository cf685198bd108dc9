"""The paths that a script's text names, whatever builds them."""

from __future__ import annotations

import pytest

from functions.formats.path_strings import LONGEST_TEXT, strings_of


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('open("data/train.bin", "rb")', "data/train.bin"),
        ("np.memmap(os.path.join('data', dataset, 'train.bin'))", "data"),
        ('Path(__file__).parent / "data" / split', "data"),
        ('f"data/{split}.bin"', "data/{split}.bin"),
        ('f"{HERE}/data/{split}.bin"', "data/{split}.bin"),
        ("path: data/train.bin", "data/train.bin"),
        ("root: data\nseed: 1", "data"),
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
