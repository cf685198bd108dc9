"""Settings: where they are read from, and from where not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from state.client_settings import user_file
from state.settings import Settings, set_in_vain


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings, in a folder that is not his own."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return tmp_path


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def test_a_repository_s_file_sets_nothing(home: Path) -> None:
    write(home / "project" / ".env", "NIGHTJAR_REDIS_SERVER=./redis-server", "NIGHTJAR_DATA=here")
    assert Settings() == Settings.model_construct()


def test_the_command_line_comes_before_variables_the_data_directory_s_file_and_the_user_s(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        user_file(),
        f"NIGHTJAR_DATA={home / 'data'}",
        "NIGHTJAR_LAB=night",
        "NIGHTJAR_PORT=1",
        "NIGHTJAR_STALE_S=7",
    )
    write(home / "data" / ".env", "NIGHTJAR_DATA=/elsewhere", "NIGHTJAR_LAB=day", "NIGHTJAR_PORT=4002")
    settings = Settings()
    assert (settings.data_dir, settings.lab) == (
        home / "data",
        "night",
    )  # the lab's own file may not say so
    assert (settings.port, settings.stale_s) == (4002, 7.0)

    monkeypatch.setenv("NIGHTJAR_PORT", "4003")
    monkeypatch.setenv("NIGHTJAR_SILENT_S", "30")
    settings = Settings(silent_s=20.0)
    assert (settings.port, settings.silent_s, settings.stale_s) == (4003, 20.0, 7.0)


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_a_data_directory_without_a_name_is_the_default_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, blank: str
) -> None:
    expected = home / "state" / "nightjar" / "lab"

    assert Settings.model_validate({"data": blank}).data_dir == expected
    monkeypatch.setenv("NIGHTJAR_DATA", blank)
    assert Settings().data_dir == expected
    monkeypatch.delenv("NIGHTJAR_DATA")
    write(user_file(), f"NIGHTJAR_DATA={blank}")
    assert Settings().data_dir == expected


def test_a_text_that_is_no_url_of_a_lab_and_an_unknown_home_are_refused() -> None:
    for url in ("127.0.0.1:3111", "htp://lab", "lab", "http:///api"):
        with pytest.raises(ValueError, match="is not a URL such as https://HOST"):
            Settings(url=url)
    with pytest.raises(ValueError, match="there is no user 'nobody-here'"):
        Settings.model_validate({"data": "~nobody-here/labs"})


def test_a_variable_of_other_servers_that_sets_nothing_is_named_with_what_to_use_instead() -> None:
    of_others = {"BAD_PI_SCIENCE_MODE": "popper", "DASHBOARD_TOKENS": "a,b", "META_RUNTIME_STATE_PATH": ""}
    taken = {"BAD_PI_SPEC_EXEC_ENABLED": "1", "META_ENROLL_TOKEN": "xyzzy", "NIGHTJAR_PORT": "1"}

    found = set_in_vain(of_others | taken)

    assert [*found] == [*of_others]
    assert "nightjar config" in found["BAD_PI_SCIENCE_MODE"]
    assert "--role viewer" in found["DASHBOARD_TOKENS"]
    assert "in Redis" in found["META_RUNTIME_STATE_PATH"]


PUBLISHED = {
    "MAX_CONSECUTIVE_CRASHES": ("9", "max_consecutive_crashes", 9),
    "BAD_PI_SPEC_EXEC_ENABLED": ("1", "pipeline_enabled", True),
    "BAD_PI_SPEC_AUTO_DEPLOY": ("on", "pipeline_auto_deploy", True),
    "BAD_PI_SPEC_CONF_THRESHOLD": ("0.8", "pipeline_least_confidence", 0.8),
    "BAD_PI_DEPLOY_CONF_THRESHOLD": ("0.9", "pipeline_least_bank", 0.9),
    "BAD_PI_PIPELINE_BATCH_EVERY": ("30", "pipeline_batch_every", 30),
    "BAD_PI_LLM_PROVIDER": ("openai", "llm_provider", "openai"),
    "META_BASE_PROGRAM_MD_PATH": ("/srv/program.md", "program", Path("/srv/program.md")),
    "META_ENROLL_TOKEN": ("open sesame", "swarm_secret", SecretStr("open sesame")),
    "NIGHTJAR_SWARM_SECRET": ("open sesame", "swarm_secret", SecretStr("open sesame")),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_name_sets_what_it_sets_in_the_published_server_and_no_secret_is_shown(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text, field, value = PUBLISHED[name]
    monkeypatch.setenv(name, text)
    settings = Settings()
    assert getattr(settings, field) == value
    assert "sesame" not in f"{settings} {settings!r} {settings.model_dump_json()}"
