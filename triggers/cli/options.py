"""Options that several commands share."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from pydantic import ValidationError

from state.client_settings import ClientSettings
from state.ids import TAG_PATTERN

if TYPE_CHECKING:
    from state.settings import Settings
    from triggers.cli.lab_http import LabHttp

AnySettings = TypeVar("AnySettings", bound=ClientSettings)
_TAG_OPTION = f"{__name__}.tag"
"""Key under which click keeps --tag until TAG is read."""
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """Seconds, or a number followed by s, m, h or d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if found is None:
            self.fail(f"{str(value)!r} is not a duration such as 90s, 5m, 12h or 30d", param, ctx)
        return float(found[1]) * UNITS[found[2]]


class FiniteNumber(click.FloatRange):
    """A finite number in a range. Click alone accepts NaN in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{str(value)!r} is not a finite number", param, ctx)
        return found


class NameType(click.ParamType[str]):
    """A tag's or an agent's name, which is used in a git branch and as a folder."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not re.fullmatch(TAG_PATTERN, text) or ".." in text or text.endswith((".", ".lock")):
            self.fail(f"{text!r} is no name: letters, digits, . _ - and 40 characters at most", param, ctx)
        return text


class FolderPath(click.Path):
    """A path. An empty word means none, not the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value, param, ctx) if str(value).strip() else None


EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)

data_option = click.option(
    "--data", type=FolderPath(path_type=Path), help="state directory of the lab [NIGHTJAR_DATA]"
)
lab_option = click.option("--lab", help="name of the lab [NIGHTJAR_LAB]")

json_option = click.option("--json", "as_json", is_flag=True, help="print JSON")


def _with(name: str, made: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --data and --lab to a command. It gets `made(data, lab)` as the argument `name`."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(*, data: str | None, lab: str | None, **given: Any) -> Any:
            return command(**{name: made(data=data, lab=lab)}, **given)

        return data_option(lab_option(called))

    return decorated


def tag_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `tag`, given as TAG or as --tag TAG; None if it is not given."""

    def either(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        option: str | None = ctx.meta.pop(_TAG_OPTION, None)
        if value is not None and option is not None and value != option:
            raise click.UsageError(f"two tags are named, {value!r} and {option!r}: give one", ctx)
        return value if option is None else option

    def kept(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        ctx.meta[_TAG_OPTION] = value

    command = click.argument("tag", required=False, callback=either)(command)
    return click.option(
        "--tag",
        "tag_option",
        metavar="TAG",
        is_eager=True,
        expose_value=False,
        callback=kept,
        help="the same as TAG",
    )(command)


def settings_from(**given: Any) -> ClientSettings:
    """Settings to reach the running lab. Raises click.UsageError: a setting is not valid."""
    return _settings(ClientSettings, given)


def all_settings_from(**given: Any) -> Settings:
    """All settings, for a command that does more. Raises click.UsageError: a setting is not valid."""
    from state.settings import Settings  # imported late: it takes as long as all else

    return _settings(Settings, given)


def _settings(kind: type[AnySettings], given: Mapping[str, Any]) -> AnySettings:
    named = {name: value for name, value in given.items() if value is not None}
    try:
        return kind(**named)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise click.UsageError(
            f"setting NIGHTJAR_{name}: {first['msg'].removeprefix('Value error, ')}"
        ) from problem


def _running_lab(**given: Any) -> LabHttp:
    from triggers.cli.lab_http import LabHttp  # imported late: not every command asks a lab

    return LabHttp(settings_from(**given))


with_settings = _with("settings", settings_from)
"""For a command that needs to know where the running lab is."""
with_all_settings = _with("settings", all_settings_from)
with_lab = _with("http", _running_lab)
"""For a command that asks the running lab."""
