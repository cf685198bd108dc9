"""Reads the output of coding agents: tokens, cost, and usage limits with their ends.

Claude Code (`claude -p --output-format stream-json --verbose`) ends with a `result` with its `usage` and
`total_cost_usd`. Before that, every `assistant` message has the usage of its own request. Codex (`codex exec --json`)
has the usage of its thread in each `turn.completed`, and in older versions in `token_count` messages.

Words of usage limits were collected from Claude Code, Codex, Gemini CLI, Copilot, aider and the errors of the
providers' HTTP APIs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from functions.formats.metrics_block import without_controls
from functions.search.rules.suggestions import short

Amount = TypeVar("Amount", int, float)
LONGEST_LINE = 4 * 1024 * 1024
"""Longest message of an agent, in bytes."""


@dataclass(frozen=True)
class Usage:
    """Tokens and cost; None: the tool does not print them."""

    tokens: int | None = None
    """Input and output, cached input included."""
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(_sum(self.tokens, other.tokens), _sum(self.cost_usd, other.cost_usd))


@dataclass
class Meter:
    """Reads the lines of one process. A printed total replaces everything before it."""

    _total: Usage = field(default_factory=Usage)
    _messages: dict[str, int] = field(default_factory=dict)
    """Tokens of each message, which may be printed several times."""

    @property
    def usage(self) -> Usage:
        if self._total.tokens is None and self._messages:
            return Usage(sum(self._messages.values()), self._total.cost_usd)
        return self._total

    def read(self, line: bytes) -> None:
        """One line that it has printed."""
        if not line.startswith(b"{") or len(line) > LONGEST_LINE:
            return
        try:
            said = json.loads(line)
        except ValueError:
            return
        match said:
            case {"type": "result", **more}:
                cost = more.get("total_cost_usd")
                self._total = Usage(_tokens(more.get("usage")), _amount(cost))
            case {"type": "assistant", "message": {"id": str(name), "usage": usage}}:
                self._messages[name] = _tokens(usage) or 0
            case {"type": "turn.completed", "usage": usage} | {
                "msg": {"type": "token_count", "info": {"total_token_usage": usage}}
            }:
                self._total = Usage(_tokens(usage))


def _tokens(usage: Any) -> int | None:
    """The sum of a usage. Claude counts what it has cached beside the input, Codex among it, under another name."""
    if not isinstance(usage, dict):
        return None
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
    return int(sum(_amount(usage.get(name)) or 0.0 for name in ("input_tokens", "output_tokens", *cached)))


def _amount(value: Any) -> float | None:
    """A number that can be a sum of money or tokens."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None


def _sum(one: Amount | None, other: Amount | None) -> Amount | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


# -- Usage limits, and when they end, in the last lines that an agent printed.

LONGEST = 160
"""Characters of the line that is quoted."""
JUST_PASSED = timedelta(hours=1)
"""A time of day that passed more recently than this is today's, not tomorrow's."""
_AFTER = 800
"""Characters after the words in which their time is looked for first."""

_KIND = r"(?:usage|rate|session|weekly|daily|monthly|hour(?:ly)?|message|request|plan|credit|spend(?:ing)?)"
_PER = r"per (?:minute|hour|day|week|month)"
_MET = r"(?:reached|exceeded|hit)\b"
_NO_OTHER = r"(?:(?!context|turn|output|token|time|step|file|memory|disk)[\w'-]+ ){0,4}?"
_WORDS = re.compile(
    "|".join(
        (
            rf"(?<!learning ){_KIND}s?[ _-]limits?[ _](?:(?:is|was|has|have|been|were) ){{0,2}}{_MET}",
            rf"(?:{_KIND} limit|\blimit reached)\W{{1,5}}resets?\b|\bThrottlingException\b",
            rf"\b(?:hit|reached|exceed(?:ed|s)?|over) {_NO_OTHER}{_KIND}[ -]limit",
            rf"\byou(?:'ve| have) (?:hit|reached|exceeded) {_NO_OTHER}(?:limit|quota)\b",
            rf"(?<!approaching ){_KIND} limits? (?:will (?:be )?)?resets?\b|\b(?:limits?|quota) will (?:be )?reset\b",
            r"\baccess resets\b|\bresume using this model\b",
            r"(?<!learning )rate[_ -]?limit(?:ed\b|[_ ]error\b|error:|[_ -]?(?:exceeded|reached|hit)\b)",
            r"(?:http(?:/[\d.]+)?|status(?:[ _-]?code)?|code|error)[\"']?[\s:=(]{0,3}(?:code[\s:]*)?[\"']?[45]29\b",
            r"\b429 (?:too many|\{)|\btoo many requests\b",
            r"(?<!disk )\bquota (?:(?:is|was|has|been) ){0,2}(?:exceeded|exhausted|reached|used up)\b",
            rf"\b(?:exceeded|exhausted|reached|out of|used up) {_NO_OTHER}(?:quota|capacity|credits?)\b",
            rf"\b(?:out of|used up|used all|exceeded) {_NO_OTHER}(?:token )?(?:usage|messages|requests)\b",
            rf"\b(?:daily|weekly|monthly|hourly|{_PER}) (?:\w+ )?limits? (?:is |was )?{_MET}",
            r"\blimit reached\W{1,5}(?:please )?(?:retry|try again|wait)\b",
            r"\bcredit balance is too low\b|\binsufficient[_ ](?:quota|balance|credits?|funds)\b",
            r"\bresource[_ ](?:has been )?exhausted\b(?!\W+(?:out of memory|oom))",
            r"\berror\W{1,3}(?:repeated )?(?:529 )?overloaded\b",
            r"\boverloaded_error\b|\b(?:is|are) (?:(?:currently|temporarily) )?overloaded\b",
            r"\bexperiencing high demand\b",
        )
    ),
    re.IGNORECASE,
)
_RESETS = re.compile(r"resets\b|retry[-_ ]after\b", re.IGNORECASE)
"""Words that speak of a limit where a time follows."""
_WARNING = re.compile(
    r"\b(?:approaching|nearing|close to|used \d\d?% of)\b.*\b(?:limits?|usage|quota)\b", re.IGNORECASE
)
"""A limit that is not met yet."""
_LEAD = (
    r"\b(?:reset\w*|retry\w*|try(?:ing)? again|again|available|resum\w*|wait|until|renew\w*|refresh\w*|restored?)\b"
    r"(?:(?!every)[^\d|]){0,40}?"
)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_UNIT = r"ms|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s"
_PART = rf"(\d+(?:\.\d+)?)\s*({_UNIT})(?![a-z])[\s,]*(?:and )?"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ZONES = {
    "PT": "America/Los_Angeles",
    "MT": "America/Denver",
    "CT": "America/Chicago",
    "ET": "America/New_York",
    "CET": "Europe/Paris",
    "CEST": "Europe/Paris",
    "BST": "Europe/London",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "PACIFIC": "America/Los_Angeles",
    "EASTERN": "America/New_York",
}
_MONTH, _NTH = rf"(?:{'|'.join(_MONTHS)})[a-z]*\.?", r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = rf"(?P<date>{_MONTH} {_NTH}|{_NTH} {_MONTH})(?:,? (?P<year>\d{{4}}))?"
_IS_TIME = r"(?=\d{1,2}(?::\d\d| ?[ap]\.?m\b)|noon|midnight)"
_HOUR = r"(?P<hour>\d\d?)(?::(?P<minute>\d\d)(?::\d\d)?)? ?(?P<half>[ap]\.?m\b\.?)?"
_TIME = rf"{_IS_TIME}(?:{_HOUR}|(?P<word>noon|midnight))"
_OFFSET = r"(?:UTC|GMT)\b(?: ?[+-]\d{1,2}(?::?\d\d)?)?"
_ZONE = rf" ?\(?(?P<zone>[a-z]+(?:/[a-z0-9_+-]+)+|{_OFFSET}|Pacific|Eastern|(?-i:[A-Z]{{1,5}})\b)\)?"
_CLOCK = re.compile(
    rf"{_LEAD}(?=\d|noon|midnight|tomorrow|{'|'.join((*_DAYS, *_MONTHS))})"
    rf"(?:(?P<day>{'|'.join(_DAYS)})[a-z]*,? (?:at )?|{_DATE},?(?: at)? ?|(?P<tomorrow>tomorrow),?(?: at)? )?"
    rf"(?(date)|{_IS_TIME})(?:{_TIME})?(?:{_ZONE})?",
    re.IGNORECASE,
)
_IN = re.compile(rf"{_LEAD}((?:{_PART})+)", re.IGNORECASE)
_HEADER = re.compile(
    r"(?:retry[-_ ]?after|resets?[-_]in)[-_ ]?(ms)?(?:seconds?|secs?)?[\"':=\s]+(\d+(?:\.\d+)?)\b",
    re.IGNORECASE,
)
_HTTP_DATE = re.compile(r"retry-after\W+(\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT)", re.IGNORECASE)
_EPOCH = re.compile(r"(?:resets?(?:[_ ]?at)?[\"':=\s]*(?:at )?|\|)(\d{10}(?:\d{3})?)\b", re.IGNORECASE)
_ISO = re.compile(
    rf"{_LEAD}(\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(?: ?(Z|UTC|[+-]\d\d:?\d\d))?",
    re.IGNORECASE,
)
_FRAME = re.compile(r"[│┃║╭╮╰╯─═⎿■●✕✗]")


@dataclass(frozen=True)
class UsageLimit:
    """A limit that an agent has met."""

    said: str
    """The line that says so."""
    until: datetime | None
    """When it ends; None: that is not said, or has passed."""


def usage_limit(lines: Iterable[str], now: datetime) -> UsageLimit | None:
    """The limit in the last lines of an agent. A time without a zone is in the zone of `now`."""
    told = [text for line in lines if (text := _told(line))]
    whole = " ".join(told)
    times = sorted(_times(whole, now), key=lambda time: time[0])
    found = [words.start() for words in _WORDS.finditer(whole)]
    found = found or [start for start, until in times if until is not None and _RESETS.match(whole, start)]
    if not found:
        return None
    at = found[-1]
    after = [until for start, until in times if at <= start < at + _AFTER]
    until = [*after[:1], *[until for _, until in times][-1:], None][0]
    said = next((text for text in reversed(told) if _WORDS.search(text)), whole[at:])
    return UsageLimit(
        short(re.sub(r"\(?https?://\S+", "", said), LONGEST), until if until and until > now else None
    )


def _told(line: str) -> str:
    """A line without frames. JSON counts only where it reports an error: models and tools write other messages."""
    text = without_controls(line).strip()
    if text.startswith("{"):
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None  # some tools print objects of JavaScript
        if isinstance(said, dict):
            text = _of_message(said)
    text = without_controls(" ".join(_FRAME.sub(" ", text).replace("’", "'").split()))
    return "" if _WARNING.search(text) else text


def _of_message(said: Mapping[str, Any]) -> str:
    """The texts of an error in a message of `claude --output-format stream-json`, `codex --json` and their like."""
    kinds = [
        str(of["type"])
        for of in (said, said.get("msg"), said.get("item"))
        if isinstance(of, dict) and "type" in of
    ]
    is_error = not kinds or any("error" in kind or "fail" in kind for kind in kinds)
    match said:
        case {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", **info}}:
            return f"usage limit reached, resets at {info.get('resetsAt')}"
        case {"type": "result"}:
            failed = said.get("is_error") or said.get("status") == "error"
            is_error = bool(failed) or len(str(said.get("result", ""))) <= LONGEST
    return ", ".join(_flat("", said)) if is_error else ""


def _flat(name: str, value: Any) -> Iterator[str]:
    match value:
        case dict():
            for inner, of in value.items():
                yield from _flat(str(inner), of)
        case list():
            for of in value:
                yield from _flat(name, of)
        case str() | int() | float():
            yield f"{name}: {value}"


def _times(text: str, now: datetime) -> Iterator[tuple[int, datetime | None]]:
    """Position and value of each time in a text at which a limit may end; None: it cannot be read."""
    text = re.sub(r"\ban? (?=hour|minute|day|week)", "1 ", text)
    for pattern, read in _READERS:
        for found in pattern.finditer(text):
            try:
                yield found.start(), read(found, now)
            except (ValueError, OverflowError):
                yield found.start(), None


def _seconds(found: re.Match[str]) -> float:
    parts = re.findall(_PART, found[1], re.IGNORECASE)
    return sum(float(n) * _UNITS["ms" if unit.lower() == "ms" else unit[0].lower()] for n, unit in parts)


def _clock(found: re.Match[str], now: datetime) -> datetime | None:
    """A date, a day or a time of day as a moment."""
    named = found.groupdict()
    if (zone := _zone(named["zone"], now)) is None:
        return None
    here = now.astimezone(zone)
    hour = {"noon": 12, "midnight": 0}.get((named["word"] or "").lower(), int(named["hour"] or 0))
    if half := named["half"]:
        hour = hour % 12 + (12 if half.lower().startswith("p") else 0)
    moment = here.replace(hour=hour, minute=int(named["minute"] or 0), second=0, microsecond=0)
    if date := named["date"]:
        month = next(n for n, name in enumerate(_MONTHS, 1) if name in date.lower())
        year = int(named["year"] or here.year)
        moment = moment.replace(year=year, month=month, day=int(re.findall(r"\d+", date)[0]))
        is_past_year = not named["year"] and here - moment > timedelta(days=180)
        return moment.replace(year=year + 1) if is_past_year else moment
    if day := named["day"]:
        moment += timedelta(days=(_DAYS.index(day.lower()) - here.weekday()) % 7)
    if named["tomorrow"]:
        moment += timedelta(days=1)
    return moment if here - moment < JUST_PASSED else moment + timedelta(days=7 if day else 1)


def _zone(name: str | None, now: datetime) -> tzinfo | None:
    """The time zone of this name, that of `now` where there is none; None: unknown."""
    if name is None:
        return now.tzinfo
    if name.upper() in ("Z", "UTC", "GMT"):
        return UTC
    if offset := re.fullmatch(r"(?:UTC|GMT)? ?([+-])(\d{1,2}):?(\d\d)?", name, re.IGNORECASE):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-ahead if offset[1] == "-" else ahead)
    plain = re.sub(r"^([PMCE])[SD]T$", r"\1T", name.upper())
    try:
        return ZoneInfo(_ZONES.get(plain, name))
    except (KeyError, ValueError, OSError):
        return now.tzinfo if name == now.tzname() else None


_READERS: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], datetime | None]]] = (
    (_EPOCH, lambda found, _: datetime.fromtimestamp(int(found[1][:10]), UTC)),
    (_HTTP_DATE, lambda found, _: parsedate_to_datetime(found[1])),
    (_ISO, lambda found, now: datetime.fromisoformat(found[1]).replace(tzinfo=_zone(found[2], now))),
    (_IN, lambda found, now: now + timedelta(seconds=_seconds(found))),
    (_HEADER, lambda found, now: now + timedelta(seconds=float(found[2]) / (1000 if found[1] else 1))),
    (_CLOCK, _clock),
)
