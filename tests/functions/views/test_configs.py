"""What lies between two configs."""

from __future__ import annotations

from functions.views.configs import between_configs


def test_only_constants_that_differ_are_shown() -> None:
    a, b = {"LR": 0.0003, "DEPTH": 4}, {"LR": 1e-05, "DEPTH": 4}

    assert between_configs(a, b, "s-1", "s-2") == "--- s-1\n+++ s-2\n-LR = 0.0003\n+LR = 1e-05\n"


def test_nothing_lies_between_equal_configs() -> None:
    assert between_configs({"LR": 0.1}, {"LR": 0.1}, "s-1", "s-2") == ""


def test_a_constant_that_one_of_them_leaves_to_the_script_is_shown_on_the_other_s_side() -> None:
    between = between_configs({"LR": 0.1}, {"DEPTH": 4}, "s-1", "s-2")

    assert between.splitlines()[2:] == ["-LR = 0.1", "+DEPTH = 4"]


def test_a_whole_number_and_a_float_differ_as_they_do_in_a_script() -> None:
    assert "-N = 1\n+N = 1.0\n" in between_configs({"N": 1}, {"N": 1.0}, "s-1", "s-2")
