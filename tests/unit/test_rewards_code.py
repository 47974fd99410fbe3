"""How the reward `code` reads programs and tests; running them is among the integration tests."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mmrl.config.reward import CodeRewardConfig
from mmrl.rewards.base import RewardFailure
from mmrl.rewards.code import find_program
from mmrl.rewards.code_harness import equal, find, run
from mmrl.rewards.code_tests import CodeTest, InputTest, is_same_output, read_tests


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("First:\n```py\nx = 1\n```\nBetter:\n```python\nx = 2\n```\nDone.", "x = 2\n"),
        ("```python\nx = 1\n```\n```bash\nls\n```", "x = 1\n"),
        ("   ```python\n   x = 1\n   ```", "   x = 1\n"),
        ("```python\nx = 1", None),
        ("x = 1", None),
        ("", None),
    ],
)
def test_the_program_is_the_last_closed_block_of_python(response: str, program: str | None) -> None:
    assert find_program(response) == program


@pytest.mark.parametrize(
    ("kept", "tests"),
    [
        ([{"input": "1", "output": "2"}], [InputTest("1", "2")]),
        ([{"stdin": "1\n", "expected_output": 2}], [InputTest("1\n", "2")]),
        ('[{"input": "1", "output": "2"}]', [InputTest("1", "2")]),
        ({"inputs": ["1", "2"], "outputs": ["1", "4"]}, [InputTest("1", "1"), InputTest("2", "4")]),
        ({"inputs": [["a", "b"]], "outputs": [["c"]]}, [InputTest("a\nb", "c")]),
        (["assert f(1) == 2", "assert f(2) == 3"], [CodeTest("assert f(1) == 2"), CodeTest("assert f(2) == 3")]),
        ("assert f(1) == 2", [CodeTest("assert f(1) == 2")]),
        ("[f(1)] == [2]", [CodeTest("[f(1)] == [2]")]),
        (
            {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]},
            [CodeTest("assert function_named('add')(*[1, 2]) == 3")],
        ),
    ],
)
def test_tests_are_read_in_the_forms_of_data_sets(kept: Any, tests: list[Any]) -> None:
    assert read_tests(kept) == tests


@pytest.mark.parametrize(
    ("kept", "problem"),
    [
        (None, "tests of the form 'None' are not known"),
        ([], "the sample has no tests"),
        ("  ", "the sample has no tests"),
        ([{"input": "1"}], "a test of the form"),
        ([3], "a test of the form '3' is not known"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
    ],
)
def test_samples_without_tests_cannot_be_scored(kept: Any, problem: str) -> None:
    with pytest.raises(RewardFailure, match=problem):
        read_tests(kept)


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("2", "2\n", True),
        ("2 \r\n3\n\n\n", "2\n3", True),
        ("2\n\n3", "2\n3", False),
        (" 2", "2", False),
        ("2.0", "2", False),
        ("", "", True),
    ],
)
def test_outputs_are_compared_line_by_line(printed: str, expected: str, same: bool) -> None:
    assert is_same_output(printed, expected) is same


class AlwaysEqual:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


AlwaysEqual.__module__ = "solution"


def test_what_says_that_it_equals_everything_equals_nothing() -> None:
    assert equal(5, 5)
    assert equal([1, {"a": (2,)}], [1, {"a": (2,)}])
    assert not equal(5, 6)
    assert not equal(AlwaysEqual(), 5)
    assert not equal([AlwaysEqual()], [5])
    assert not equal({"a": AlwaysEqual()}, {"a": 5})
    assert equal(AlwaysEqual(), AlwaysEqual())


def test_a_test_tells_what_went_wrong() -> None:
    names = {"equal": equal, "x": 1}
    assert run("assert x == 1", dict(names)) == ""
    assert run("assert x == 2, 'not two'", dict(names)) == "AssertionError: not two"
    assert run("assert y == 2", dict(names)) == "NameError: name 'y' is not defined"
    assert run("assert (", dict(names)).startswith("SyntaxError")


def test_a_function_may_be_a_method_of_solution() -> None:
    class Solution:
        def add(self, a: int, b: int) -> int:
            return a + b

    found = find({"Solution": Solution}, "add")
    assert callable(found)
    assert found(1, 2) == 3


def test_a_test_cannot_have_more_time_than_a_response() -> None:
    with pytest.raises(ValidationError, match=r"test_timeout_s \(9\) is above timeout_s \(5\)"):
        CodeRewardConfig(test_timeout_s=9, timeout_s=5)
