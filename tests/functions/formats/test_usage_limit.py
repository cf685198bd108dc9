"""Words of usage limits as coding agents print them, and the time at which a limit ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.formats.agent_output import usage_limit

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 26, 22, 15, tzinfo=BERLIN)  # a Thursday
FIVE_UTC = datetime(2026, 11, 27, 5, tzinfo=UTC)


def at(day: int, hour: int, minute: int = 0, zone: str = "Europe/Berlin", month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=ZoneInfo(zone))


CLAUDE_JSON = (
    '{"type":"result","subtype":"success","is_error":true,"result":"You\'ve hit your limit · resets 11pm"}'
)
REJECTED = '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1795755600}}'
CODEX_JSON = '{"type":"error","message":"You\'ve hit your usage limit. Try again at 4:29 AM."}'


AFTER = [
    (
        "You've hit your usage limit. Upgrade (https://a.example) or try again in 3 days 4 hours 5 minutes.",
        timedelta(days=3, hours=4, minutes=5),
    ),
    (
        "[API Error: Your quota will reset after 8h44m7s. You have exhausted your capacity on this model]",
        timedelta(hours=8, minutes=44, seconds=7),
    ),
    (
        "You have exhausted your capacity on this model. Your quota will reset after 2m.",
        timedelta(minutes=2),
    ),
    (
        "openai.RateLimitError: Rate limit reached for gpt. Please try again in 1h12m36s.",
        timedelta(0, 4356),
    ),
    ('"status": "RESOURCE_EXHAUSTED",\n "retryDelay": "26s"', timedelta(seconds=26)),
    ("HTTP/1.1 429 Too Many Requests\nRetry-After: 120", timedelta(seconds=120)),
    (
        "Sorry, you have been rate-limited. Please wait 2 minutes before trying again.",
        timedelta(minutes=2),
    ),
    ("Limit reached; please retry after 3600 seconds", timedelta(hours=1)),
    ('{"error":{"type":"usage_limit_reached","resets_in_seconds":7200}}', timedelta(hours=2)),
    ("status: 429, retry-after-ms: 1500", timedelta(seconds=1.5)),
]
NO_TIME = [
    "You've hit your usage limit, or wait for limits to reset (every 5h and every week.).",
    'API Error: 429 {"type":"error","error":{"type":"rate_limit_error","message":"Please try again later."}}',
    "openai.RateLimitError: Error code: 429 - {'error': {'code': 'insufficient_quota'}}",
    "Daily token limit reached. Try again tomorrow.",
    "Sorry, you have exceeded your Copilot token usage. Please review our Terms of Service.",
    "API Error: Repeated 529 Overloaded errors",
    "usage limit reached, resets 10pm",  # a quarter of an hour ago
    "usage limit reached, resets 5pm AEST",
    "You have exhausted your capacity on this model. Your quota will reset after 0s.",
]


@pytest.mark.parametrize(
    ("printed", "until"),
    [
        ("usage limit reached, resets 3am", at(27, 3)),
        ("Claude AI usage limit reached|1795755600", FIVE_UTC),
        ("5-hour limit reached ∙ resets 3pm", at(27, 15)),
        ("You've hit your limit · resets 10pm (America/New_York)", at(26, 22, zone="America/New_York")),
        (
            "  ⎿  You’ve hit your session limit · resets 12:50am (America/Los_Angeles)\n     /upgrade to go on",
            at(27, 0, 50, zone="America/Los_Angeles"),
        ),
        ("Weekly limit reached ∙ resets Dec 3, 5pm", at(3, 17, month=12)),
        ("You've hit your weekly limit · resets Dec 2 at 5pm (UTC)", at(2, 17, zone="UTC", month=12)),
        ("You've hit your limit for Claude messages. Limits will reset at 9:30 AM.", at(27, 9, 30)),
        (CLAUDE_JSON, at(26, 23)),
        (REJECTED, FIVE_UTC),
        (CODEX_JSON, at(27, 4, 29)),
        ('{"type":"error","message":"usage limit reached\\nresets 3am"}', at(27, 3)),
        ("You've hit your usage limit. Try again at 3:05 PM", at(27, 15, 5)),
        ("usage limit reached, resets Monday 3am", at(30, 3)),
        ("usage limit reached; will reset at 27 Nov 03:00", at(27, 3)),
        ("LLM quota exhausted until 2026-11-27T06:00:00+01:00", FIVE_UTC),
        ('{"type":"error","error":{"type":"usage_limit_reached","resets_at":1795755600}}', FIVE_UTC),
        ("You've hit your \x1b[1musage limit\x1b[0m. Resets \x1b[2m11 PM\x1b[0m", at(26, 23)),
        (
            "Usage limit reached for gemini-3. Access resets at 10:57 PM GMT-3.",
            at(26, 22, 57, zone="Etc/GMT+3"),
        ),
        ("You've used all your included usage until 3am.", at(27, 3)),
        ("daily limit reached, resets at midnight Pacific time", at(27, 0, zone="America/Los_Angeles")),
        ("HTTP/1.1 429 Too Many Requests\nRetry-After: Fri, 27 Nov 2026 05:00:00 GMT", FIVE_UTC),
        *((printed, NOW + after) for printed, after in AFTER),
        *((printed, None) for printed in NO_TIME),
    ],
)
def test_a_limit_ends_when_its_words_say_or_at_a_time_that_is_not_known(
    printed: str, until: datetime | None
) -> None:
    found = usage_limit(printed.splitlines(), NOW)
    assert found is not None
    assert found.until == until


@pytest.mark.parametrize(
    "printed",
    [
        "sh: 1: claude: not found",
        "error: unexpected argument '--limit' found",
        "ImportError: cannot import name 'RateLimitError' from 'openai'",
        "OSError: [Errno 122] Disk quota exceeded",
        "Context limit reached · /compact or /clear to continue",
        "Approaching usage limit · resets at 7pm",
        "You've used 90% of your weekly limit · resets Monday at 9am",
        "learning rate limit reached",
        "RESOURCE_EXHAUSTED: Out of memory allocating 123 bytes",
        "Time limit reached",
        '{"type":"rate_limit_event","rate_limit_info":{"status":"allowed","resetsAt":1795755600}}',
        '{"type":"assistant","message":{"content":[{"type":"text","text":"usage limit reached|1795755600"}]}}',
        '{"type":"item.completed","item":{"type":"agent_message","text":"usage limit reached, resets 3am"}}',
        '{"type":"result","is_error":false,"result":"'
        + "The run met a rate limit exceeded error. " * 9
        + '"}',
    ],
)
def test_other_failures_and_what_a_model_wrote_are_no_limit(printed: str) -> None:
    assert usage_limit(printed.splitlines(), NOW) is None


def test_the_last_limit_counts_and_its_line_is_quoted_without_addresses() -> None:
    found = usage_limit(
        [
            "rate limit exceeded, try again in 20s",
            "│ You've hit your usage limit. Upgrade (https://a.example/?key=secret) or try again at 11 PM. │",
            "  at async main (file:///usr/lib/node_modules/cli.js:1:2)",
        ],
        NOW,
    )

    assert found is not None
    assert found.until == at(26, 23)
    assert found.said == "You've hit your usage limit. Upgrade or try again at 11 PM."


@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    "rate limit exceeded",
                    "resets",
                    "at",
                    "in",
                    "try again",
                    "Retry-After:",
                    "|",
                    '{"a":' * 4000,
                ),
                *(
                    "tomorrow",
                    "Feb 30",
                    "Dec 1",
                    "99:99",
                    "3am",
                    "13pm",
                    "2026-13-45T99:99",
                    "noon",
                    "UTC+99",
                ),
                *(
                    "9" * 30,
                    "9999999999",
                    "days",
                    "1e9",
                    "7",
                    "Thu, 99 Foo 2026 99:99:99 GMT",
                    "AEST",
                    "a/../b",
                ),
            ]
        ),
        max_size=9,
    )
)
def test_no_words_of_an_agent_end_its_night(words: list[str]) -> None:
    found = usage_limit([" ".join(words), "".join(words)], NOW)
    assert found is None or found.until is None or found.until > NOW
