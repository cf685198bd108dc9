"""The choice of a provider, and the message if there is none."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr

from functions.kernel.lanes import Author
from functions.kernel.process.lifecycle import Process
from functions.kernel.process.meters import Meters
from functions.kernel.process.redaction import HIDDEN, scrubbed
from state.errors import Invalid
from state.settings import Settings
from workers.author.choosing import MODELS, author_for, choose

KEYS = {f"{name}_api_key": SecretStr(f"{name}-0123456789") for name in MODELS}


def settings(**given: Any) -> Settings:
    return Settings.model_construct(**given)


@pytest.mark.parametrize("missing", range(3))
def test_auto_takes_the_first_whose_key_is_set_and_a_named_one_goes_before(missing: int) -> None:
    order = list(MODELS)
    name = order[missing]
    there = {f"{each}_api_key": KEYS[f"{each}_api_key"] for each in order[missing:]}

    first, named = choose(settings(**there)), choose(settings(llm_provider=name, llm_model="m-1", **KEYS))

    assert first is not None
    assert (first.provider, first.model) == (name, MODELS[name])
    assert named is not None
    assert (named.provider, named.model) == (name, "m-1")


@pytest.mark.parametrize("name", MODELS)
def test_a_named_one_without_its_key_is_an_error_that_says_what_to_set(name: str) -> None:
    others = {key: value for key, value in KEYS.items() if not key.startswith(name)}

    with pytest.raises(Invalid) as refused:
        choose(settings(llm_provider=name, **others))

    assert f"{name.upper()}_API_KEY" in (refused.value.hint or "")
    assert "0123456789" not in f"{refused.value.detail} {refused.value.hint}"


@pytest.mark.parametrize("name", ["openai", "gemini"])
def test_a_named_one_without_its_sdk_is_an_error_that_names_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.author.choosing.find_spec", lambda _: None)

    with pytest.raises(Invalid, match="SDK is not installed") as refused:
        choose(settings(llm_provider=name, **KEYS))

    assert f"nightjar[{name}]" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("variable", "field"),
    [
        ("ANTHROPIC_API_KEY", "anthropic_api_key"),
        ("OPENAI_API_KEY", "openai_api_key"),
        ("GEMINI_API_KEY", "gemini_api_key"),
        ("GOOGLE_API_KEY", "gemini_api_key"),
        ("NIGHTJAR_OPENAI_API_KEY", "openai_api_key"),
    ],
)
def test_a_key_is_read_from_where_its_sdk_looks_too_and_is_never_shown(
    variable: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "k-0123456789")

    found = Settings()

    assert getattr(found, field).get_secret_value() == "k-0123456789"
    assert "k-0123456789" not in repr(found)


async def test_without_a_model_there_is_no_author_and_the_log_says_so(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async with author_for(process.settings, process.lab, Meters("pi")) as author:
        assert author is None

    assert "texts come from templates" in caplog.text


@pytest.mark.parametrize("name", MODELS)
async def test_an_author_says_who_it_is_and_hides_its_key(process: Process, name: str) -> None:
    key = f"a-very-own-{name}-key"
    given = process.settings.model_copy(update={"llm_provider": name, f"{name}_api_key": SecretStr(key)})

    async with author_for(given, process.lab, Meters("pi")) as author:
        assert isinstance(author, Author)
        assert author.name == f"{name} {MODELS[name]}"  # type: ignore[index]  # a name of the dictionary

    assert scrubbed(f"sent {key}") == f"sent {HIDDEN}"


def test_no_sdk_is_imported_before_an_author_is_built() -> None:
    sdks = "('anthropic', 'openai', 'google.genai')"
    code = f"import sys, workers.author.choosing; print([m for m in {sdks} if m in sys.modules])"

    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert out.stdout.strip() == "[]"
