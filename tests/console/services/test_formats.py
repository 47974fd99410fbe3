"""Numbers, sizes and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from console.services.formats import age_text, bytes_text, count_text, duration_text, end_text, exact_text, number_text

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.83456, "0.8346"),
        (12.3456, "12.35"),
        (5200.4, "5,200"),
        (1234567.0, "1,234,567"),
        (1e-06, "1.000e-06"),
        (-0.5, "−0.5000"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_values_have_four_digits(value: float | None, text: str) -> None:
    assert number_text(value) == text


def test_a_difference_has_its_sign_and_a_response_ends_in_words() -> None:
    assert [number_text(value, 3, plus=True) for value in (0.5, -12.34, 0.0, 3.0)] == ["+0.500", "−12.3", "0", "+3"]
    assert [end_text(each) for each in ("stop", "length", "abort")] == ["ended by itself", "cut at the limit", "abort"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (250_000, "250 kB"), (7 * 10**9, "7.0 GB")]
)
def test_sizes_are_in_units_of_a_thousand(number: int, text: str) -> None:
    assert bytes_text(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (600, "10 min"), (7500, "2 h 5 min"), (273_600, "3 d 4 h")],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_ages_tell_the_past_and_what_is_to_come() -> None:
    assert age_text(NOW - timedelta(seconds=3), NOW) == "just now"
    assert age_text(NOW - timedelta(seconds=200), NOW) == "3 min ago"
    assert age_text(NOW + timedelta(minutes=90), NOW) == "in 1 h 30 min"
    assert age_text(None, NOW) == "–"
    assert exact_text(NOW) == "2026-11-30 12:00:00 UTC"
    assert count_text(1_000_000) == "1,000,000"
