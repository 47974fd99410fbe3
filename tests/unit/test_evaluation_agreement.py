"""Agreement between people, against examples worked by hand and from the literature."""

from __future__ import annotations

import pytest

from mmrl.evaluation.agreement import (
    Agreement,
    alpha_with_interval,
    cohen_kappa,
    kappa_with_interval,
    krippendorff_alpha,
)


def test_kappa_of_a_table_worked_by_hand() -> None:
    """Both yes 20, both no 15, only the first yes 5, only the second yes 10: p_o 0.7, p_e 0.5, kappa 0.4."""
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


def test_kappa_at_its_ends() -> None:
    assert cohen_kappa(["a", "b"], ["a", "b"]) == 1.0
    assert cohen_kappa(["a", "b"], ["b", "a"]) == -1.0
    assert cohen_kappa(["a", "a"], ["a", "a"]) is None
    assert cohen_kappa([], []) is None
    with pytest.raises(ValueError, match="the same things: 1 and 2"):
        cohen_kappa(["a"], ["a", "b"])


def test_alpha_of_two_judges_worked_by_hand() -> None:
    """Units aa, aa, bb, ab: coincidences aa 4, bb 2, ab 1, ba 1; D_o 2/8, D_e 2 * 5 * 3 / (8 * 7); alpha 8/15."""
    judged = {"1": "aa", "2": "aa", "3": "bb", "4": "ab"}
    units = {unit: dict(zip("xy", values, strict=True)) for unit, values in judged.items()}
    assert krippendorff_alpha(units) == pytest.approx(1 - (2 / 8) / (30 / 56))


def test_alpha_of_the_example_with_missing_values() -> None:
    """Krippendorff 2011, part C: four observers, twelve units, nominal: 0.743."""
    observers = [
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    ]
    units = {
        str(unit): {
            str(judge): value for judge, value in enumerate(each.split()[unit] for each in observers) if value != "."
        }
        for unit in range(12)
    }
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=5e-4)


def test_alpha_without_anything_to_compare_is_undefined() -> None:
    assert krippendorff_alpha({"1": {"x": "a"}}) is None
    assert krippendorff_alpha({"1": {"x": "a", "y": "a"}}) is None


def test_the_interval_of_kappa_worked_by_hand() -> None:
    """8 of 10 alike, both 5 a and 5 b: p_o 0.8, p_e 0.5; Wilson of 8 of 10 is 0.4902 to 0.9433."""
    found = kappa_with_interval("aaaabbbbab", "aaaabbbbba")
    assert found == Agreement(pytest.approx(0.6), pytest.approx(-0.0197, abs=1e-4), pytest.approx(0.8867, abs=1e-4), 10)


def test_few_judgements_that_all_agree_are_not_told_as_certain() -> None:
    """Wilson of 4 of 4 is 0.5101 to 1: kappa is 1, but may be 0.02."""
    found = kappa_with_interval("abab", "abab")
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.0202, abs=1e-4)
    many = kappa_with_interval("ab" * 100, "ab" * 100)
    assert many.low == pytest.approx(0.9623, abs=1e-4)


def test_the_interval_of_alpha_worked_by_hand() -> None:
    """aa, aa, bb, ab: D_o 1/4, D_e 30/56; Wilson of 3 of 4 is 0.3006 to 0.9544."""
    units = {unit: dict(zip("xy", unit, strict=True)) for unit in ("aa", "Aa", "bb", "ab")}
    units["Aa"] = {"x": "a", "y": "a"}
    found = alpha_with_interval(units)
    assert found.num == 4
    assert found.value == pytest.approx(8 / 15)
    assert found.low == pytest.approx(1 - (1 - 0.30064) * 56 / 30, abs=1e-4)
    assert found.high == pytest.approx(1 - (1 - 0.95441) * 56 / 30, abs=1e-4)


def test_choices_that_are_of_one_thing_count_once_for_how_sure_it_is() -> None:
    assert kappa_with_interval("abab", "abab", num=1).low < kappa_with_interval("abab", "abab").low  # type: ignore[operator]
    assert kappa_with_interval("aa", "aa") == Agreement(None, None, None, 2)
    assert alpha_with_interval({"1": {"x": "a"}}) == Agreement(None, None, None, 0)
