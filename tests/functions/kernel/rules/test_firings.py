"""The times a schedule means, and what becomes of missed ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from functions.kernel.rules.firings import (
    WEEKDAYS,
    CronTimes,
    Due,
    Schedule,
    SteadyTimes,
    Times,
    due,
    weekday_names,
)

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    """Seconds since 1970 of an ISO time; UTC where it names no offset."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def following(times: Times, after: str, count: int) -> list[str]:
    """The next times, in UTC."""
    found, time = [], at(after)
    for _ in range(count):
        time = times.next_after(time)
        found.append(f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%S}")
    return found


# -- times


@pytest.mark.parametrize(
    ("expression", "zone", "after", "times"),
    [
        # five fields begin with minutes, six with seconds
        ("*/15 * * * *", "UTC", "2026-03-11T12:00:30", "2026-03-11T12:15:00 2026-03-11T12:30:00"),
        ("*/20 * * * * *", "UTC", "2026-03-11T12:00:30", "2026-03-11T12:00:40 2026-03-11T12:01:00"),
        # an hour that is left out in spring (02:00 becomes 03:00 at 01:00 UTC) comes as much later
        ("30 2 * * *", BERLIN, "2026-03-28T23:00:00", "2026-03-29T01:30:00 2026-03-30T00:30:00"),
        (
            "0 * * * *",
            BERLIN,
            "2026-03-28T23:00:00",
            "2026-03-29T00:00:00 2026-03-29T01:00:00 2026-03-29T02:00:00",
        ),
        # an hour that is repeated in autumn (03:00 becomes 02:00 at 01:00 UTC) comes once by name, twice by star
        ("30 2 * * *", BERLIN, "2026-10-24T23:59:00", "2026-10-25T00:30:00 2026-10-26T01:30:00"),
        (
            "30 * * * *",
            BERLIN,
            "2026-10-24T23:59:00",
            "2026-10-25T00:30:00 2026-10-25T01:30:00 2026-10-25T02:30:00",
        ),
        ("0 3 * * *", BERLIN, "2026-10-24T23:59:00", "2026-10-25T02:00:00"),
    ],
)
def test_an_expression_has_these_next_times(expression: str, zone: str, after: str, times: str) -> None:
    assert following(CronTimes(expression, zone), after, len(times.split())) == times.split()


@pytest.mark.parametrize("expression", ["", "*", "* * * *", "* * * * * * *"])
def test_another_number_of_fields_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="5 or 6"):
        CronTimes(expression, "UTC")


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        *(("0", ["sun"]), ("7", ["sun"]), ("1", ["mon"]), ("1-5", ["mon", "tue", "wed", "thu", "fri"])),
        *(("0-5", ["sun", "mon", "tue", "wed", "thu", "fri"]), ("0-7", list(WEEKDAYS))),
        *(("5-7", ["sun", "fri", "sat"]), ("*/2", ["sun", "tue", "thu", "sat"])),
        *(("1-5/2", ["mon", "wed", "fri"]), ("3/2", ["wed", "fri"]), ("mon,WED,6", ["mon", "wed", "sat"])),
        ("fri-mon", ["sun", "mon", "fri", "sat"]),
    ],
)
def test_weekdays_are_counted_from_sunday(expression: str, days: Sequence[str]) -> None:
    assert weekday_names(expression).split(",") == days
    times = following(CronTimes(f"0 12 * * {expression}", "UTC"), "2026-03-11T12:00:30", 14)
    found = {WEEKDAYS[(datetime.fromisoformat(time).weekday() + 1) % 7] for time in times}
    assert found == set(days)


EXPRESSIONS = ["*/7 * * * *", "30 2 * * *", "0 */5 * * *", "15 1,2,3 * * sun", "0 0 1 * *", "*/20 * * * * *"]
moments = st.floats(at("2026-01-01"), at("2027-01-01")).map(lambda t: round(t, 6))


@settings(deadline=None)
@given(st.sampled_from(EXPRESSIONS), moments, st.floats(0, 30_000).map(lambda t: round(t, 6)))
@example("30 2 * * *", at("2026-10-25T00:30:00"), 7200.0)
@example("30 2 * * *", at("2026-03-28T20:00:00"), 86400.0)
def test_the_newest_time_and_the_count_are_as_walked(expression: str, after: float, length: float) -> None:
    calendar, walked = CronTimes(expression, BERLIN), []
    firing = calendar.next_after(after)
    while firing <= after + length:
        walked.append(firing)
        firing = calendar.next_after(firing)

    assert calendar.newest(after, after + length) == (walked[-1] if walked else None)
    assert calendar.count(after, after + length) == len(walked)
    assert walked == sorted(set(walked))


@settings(deadline=None)
@given(st.sampled_from([0.05, 1 / 3, 1.0, 2.5, 7.0, 86400.0]), moments, st.integers(0, 1000))
def test_a_steady_interval_fires_at_the_same_times_always(seconds: float, after: float, count: int) -> None:
    times = SteadyTimes(seconds)
    first = times.next_after(after)
    walked = [first]
    for _ in range(count):
        walked.append(times.next_after(walked[-1]))

    assert after < first <= after + seconds + 1e-6
    assert times.next_after(walked[-1] - 1e-6) == walked[-1]
    assert times.count(after, walked[-1]) == count + 1
    assert times.newest(after, walked[-1]) == walked[-1]
    assert times.newest(walked[-1], walked[-1]) is None


# -- policies


def every(seconds: float = 10.0, **declared: Any) -> Schedule:
    return Schedule(function="a::b", text="every", times=SteadyTimes(seconds), **declared)


@pytest.mark.parametrize(
    ("missed", "now", "until", "fire", "given_up"),
    [
        ("skip", 1010.5, 1010.0, 1010.0, 0),
        ("latest", 1010.5, 1010.0, 1010.0, 0),
        ("skip", 1050.5, 1050.0, 1050.0, 4),  # the newest is on time
        ("skip", 1057.0, 1050.0, None, 5),
        ("latest", 1050.5, 1050.0, 1050.0, 4),
        ("latest", 1057.0, 1050.0, 1050.0, 4),
    ],
)
def test_missed_firings_follow_their_policy(
    missed: Any, now: float, until: float, fire: float | None, given_up: int
) -> None:
    assert due(every(missed=missed), 1000.0, now) == Due(until, fire, given_up)


def test_after_redis_clock_was_set_back_firings_go_on() -> None:
    assert due(every(), 5000.0, 1005.5) is None
    assert due(every(), 5000.0, 1010.5) == Due(until=1010.0, fire=1010.0)
    assert due(every(1.0), 1001.0, 1000.5) is None  # so little is waited for
    assert every().next_due(5000.0, 1005.5) == (1010.0, 1010.0)


# -- jitter


@given(st.floats(0.1, 9.9), moments)
def test_all_clocks_delay_a_firing_alike_and_none_before_its_time(jitter_s: float, after: float) -> None:
    one, other = every(jitter_s=jitter_s, salt="lab"), every(jitter_s=jitter_s, salt="lab")
    firing, fire = one.next_due(after, after)
    assert other.next_due(after, after) == (firing, fire)
    assert 0 <= fire - firing <= jitter_s + 1e-6
    assert one.newest_due(after, fire - 1e-5) is None
    assert one.newest_due(after, fire + 1e-5) == firing


def test_firings_keep_their_order_under_a_jitter_that_is_longer_than_the_gap_between_them() -> None:
    schedule = Schedule("a::b", "", CronTimes("* * * * * *", "UTC"), jitter_s=5.0)
    now = at("2026-03-11T12:00:00")

    after, fired = now, list[float]()
    for step in range(2000):
        found = due(schedule, after, now + step / 100)
        if found is not None:
            after = found.until
            assert found.fire is not None
            fired.append(found.fire)

    assert fired == sorted(set(fired))
    assert len(fired) >= 3
