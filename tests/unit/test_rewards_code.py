"""How the reward `code` reads programs and tests; running them is among the integration tests."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from fractions import Fraction
from typing import Any, NamedTuple
from unittest import mock

import pytest
from pydantic import ValidationError

from mmrl.config.reward import CodeRewardConfig
from mmrl.rewards.base import RewardFailure
from mmrl.rewards.code.harness import equal, find, run
from mmrl.rewards.code.reward import find_program
from mmrl.rewards.code.tests import CodeTest, InputTest, is_same_output, read_tests


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
        ("not python at all (", "test 1 of the sample is no Python"),
        ("{", "test 1 of the sample is no Python"),
        (["assert f(1) == 2", "assert f("], "test 2 of the sample is no Python"),
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
    assert not equal(mock.ANY, 5)
    assert not equal([mock.ANY], [5])


class Near(float):
    """Claims to be near everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __sub__(self, other: object) -> float:
        return 0.0

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> bool:
        return True


class Nothing:
    def __sub__(self, other: object) -> Any:
        return 0.0

    def __lt__(self, other: object) -> bool:
        return True


class Pair(NamedTuple):
    left: int
    right: int


@pytest.mark.parametrize("returned", [Near(9.0), Nothing(), mock.ANY, mock.MagicMock(__sub__=lambda *_: 0.0)])
@pytest.mark.parametrize(
    "test",
    ["assert f() == 3.5", "assert abs(f() - 3.5) < 1e-6", "assert f() < 4", "assert round(f() - 3.5, 3) == 0",
     "assert [f()] == [3.5]", "assert 3.5 == f()", "assert {'a': f()} == {'a': 3.5}"],
)  # fmt: skip
def test_an_object_cannot_claim_to_be_what_is_expected(returned: Any, test: str) -> None:
    assert run(test, {"f": lambda: returned})
    assert run(test, {"f": lambda: 3.5}) == ""


@pytest.mark.parametrize(
    ("returned", "test"),
    [
        (Counter("aab"), "assert f() == {'a': 2, 'b': 1}"),
        (OrderedDict(a=1), "assert f() == {'a': 1}"),
        (Pair(1, 2), "assert f() == (1, 2)"),
        (deque([1, 2]), "assert list(f()) == [1, 2]"),
        (Fraction(6, 2), "assert f() == 3"),
        (Fraction(1, 2), "assert abs(f() - 0.5) < 1e-9"),
        ({1: {2}}, "assert f() == {1: {2}}"),
        (iter([1, 2]), "assert sum(f()) == 3"),
        (True, "assert f() == 1"),
        (-0.0, "assert f() == 0"),
        (2, "assert 1 < f() <= 2"),
        (None, "assert f() is None"),
        ([3, 1], "assert sorted(f()) == [1, 3] and f()[0] == 3"),
        (b"ab", "assert f() == b'ab'"),
        (Nothing(), "assert f() < f()"),
    ],
)
def test_plain_results_of_the_library_equal_what_they_hold(returned: Any, test: str) -> None:
    assert run(test, {"f": lambda: returned}) == ""


def test_a_program_cannot_replace_the_builtins_of_a_test() -> None:
    names: dict[str, Any] = {"f": lambda: 9.0, "abs": lambda value: 0.0}
    assert run("assert abs(f() - 3.5) < 1e-6", names).startswith("AssertionError")
    assert run("assert abs(-3) == 0", names) == ""


def test_a_later_test_sees_what_an_earlier_one_named() -> None:
    names: dict[str, Any] = {"f": lambda: 2}
    assert run("x = f()", names) == ""
    assert run("assert x == 2", names) == ""


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
