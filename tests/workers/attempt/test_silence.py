"""When a run that prints nothing hangs, and when it may still work."""

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


def test_a_run_that_computes_may_be_silent_for_as_long_as_it_had_run_before() -> None:
    silence = Silence(30.0, now=0.0)
    silence.ends(200.0, cpu_s=200.0)

    assert [silence.lasts(now, cpu_s=now) for now in (240.0, 300.0, 399.0, 400.0)] == [False] * 3 + [True]
    assert silence.since == 200.0


def test_a_run_that_has_stopped_to_compute_is_silent_from_then_on() -> None:
    silence = Silence(30.0, now=0.0)
    silence.ends(200.0, cpu_s=200.0)

    assert not silence.lasts(250.0, cpu_s=250.0)
    assert [silence.lasts(now, cpu_s=250.0) for now in (270.0, 280.0)] == [False, True]


def test_a_short_run_that_spins_is_silent_after_the_same_time_as_an_idle_one() -> None:
    silence = Silence(30.0, now=0.0)
    silence.ends(1.0, cpu_s=1.0)

    assert [silence.lasts(now, cpu_s=now) for now in (10.0, 30.0, 31.0)] == [False, False, True]


def test_a_thread_that_looks_now_and_then_is_no_computing() -> None:
    silence = Silence(30.0, now=0.0)

    assert [silence.lasts(now, cpu_s=0.02 * now) for now in (10.0, 20.0, 30.0)] == [False, False, True]
