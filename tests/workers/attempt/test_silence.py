"""When a run neither prints nor computes any more."""

from __future__ import annotations

from workers.attempt.silence import Silence


def test_a_run_is_silent_once_it_has_neither_printed_nor_computed_for_so_long() -> None:
    silence = Silence(30.0, now=0.0)

    assert [silence.lasts(now, cpu_s=0.0) for now in (0.0, 29.9, 30.0)] == [False, False, True]


def test_whatever_a_run_prints_begins_the_silence_anew() -> None:
    silence = Silence(30.0, now=0.0)

    silence.ends(20.0, cpu_s=5.0)

    assert [silence.lasts(now, cpu_s=5.0) for now in (30.0, 49.9, 50.0)] == [False, False, True]
    assert silence.since == 20.0


def test_a_run_that_computes_is_not_silent_until_it_stops() -> None:
    silence = Silence(30.0, now=0.0)

    computing = [silence.lasts(now, cpu_s=now) for now in (10.0, 20.0, 30.0, 300.0)]

    assert computing == [False] * 4
    assert silence.lasts(330.0, cpu_s=300.0)


def test_a_thread_that_looks_now_and_then_is_no_computing() -> None:
    silence = Silence(30.0, now=0.0)

    assert [silence.lasts(now, cpu_s=0.02 * now) for now in (10.0, 20.0, 30.0)] == [False, False, True]
