from __future__ import annotations

import time

import pytest

from mmrl.rewards.text import answer_after_phrase, last_box, normalise_width, trailing_boxes, unwrap


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("１２", "12"),
        ("（Ａ）。", "(A)."),
        ("５０％", "50%"),
        ("x²", "x^{2}"),
        ("10⁻³", "10^{-3}"),
        ("½", "1/2"),
        ("３，４、５", "3,4,5"),
        ("a − b", "a - b"),
    ],
)
def test_wide_and_compatibility_characters_become_plain(text: str, plain: str) -> None:
    assert normalise_width(text) == plain


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{2} no, \boxed{3}", "3"),
        (r"\boxed{840}. … \boxed{840}", "840"),
        (r"\fbox{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {\text{a {nested} one}}", r"\text{a {nested} one}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{3} and then \boxed{4", "3"),
        (r"\boxed{5} \boxed{}", "5"),
        (r"Mark your solution with \boxed ", None),
        (r"\boxed{", None),
        (r"\boxedx{3}", None),
        ("", None),
    ],
)
def test_the_last_complete_box_with_content_is_read(text: str, content: str | None) -> None:
    assert last_box(text) == content


def test_a_thousand_open_boxes_are_read_at_once() -> None:
    began = time.monotonic()
    assert last_box("\\boxed{" * 5_000 + "7}") == "7"
    assert unwrap("{" * 5_000 + "}" * 5_000) != ""
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"\boxed{2} and \boxed{3}", ["2", "3"]),
        (r"$\boxed{1}$, $\boxed{2}$ or $\boxed{3}$.", ["1", "2", "3"]),
        (r"\boxed{2} no, \boxed{3}", ["3"]),
        ("none", []),
    ],
)
def test_boxes_are_taken_together_only_when_little_stands_between(text: str, contents: list[str]) -> None:
    assert trailing_boxes(text) == contents


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 5", "5"),
        ("Final Answer: **73**", "73"),
        ("**Answer:** 4\nThank you.", "4"),
        ("The answer is: $x = 2$.", "x = 2"),
        ("The answer is\n\n12", "12"),
        ("The answer is 3. Wait, the answer is 4.", "4"),
        ("答案是３。", "３。"),
        ("正确答案：B", "B"),
        ("I answered it.", None),
        ("no such words", None),
    ],
)
def test_the_last_answer_phrase_gives_the_rest_of_its_line(text: str, answer: str | None) -> None:
    assert answer_after_phrase(text) == answer


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("$5$", "5"),
        (r"\(5\)", "5"),
        (r"\text{E}", "E"),
        (r"**\text{yes}**.", "yes"),
        ("{7}", "7"),
        ("{1}+{2}", "{1}+{2}"),
        ("$1$ and $2$", "$1$ and $2$"),
        ("wait...", "wait..."),
        (" 3. ", "3"),
    ],
)
def test_wrappers_around_the_whole_are_removed(text: str, bare: str) -> None:
    assert unwrap(text) == bare
