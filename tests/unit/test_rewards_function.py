from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rewards_builders import item

from mmrl.config.reward import FunctionRewardConfig
from mmrl.errors import ConfigError
from mmrl.rewards.base import RewardFailure, Score
from mmrl.rewards.function.function import FunctionReward, UserFunction, read_returned
from mmrl.rewards.function.loading import load_function


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.bool_(False), 0.0),
        (np.array(0.75), 0.75),
        ({"score": np.float64(2)}, 2.0),
        (None, None),
        ({"score": None}, None),
    ],
)
def test_numbers_bools_numpy_scalars_dicts_and_none_are_scores(returned: Any, value: float | None) -> None:
    assert read_returned(returned).value == value


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("1.0", r"it returned '1.0' \(str\); allowed"),
        ([0.5], r"it returned \[0.5\] \(list\)"),
        (np.array([0.5]), r"\(ndarray\)"),
        (float("nan"), "it returned nan"),
        (float("inf"), "it returned inf"),
        ({"acc": 1.0}, r"a dict without 'score' \(its keys: 'acc'\)"),
        ({}, "a dict without 'score'"),
        ({"score": "1"}, r"whose 'score' is '1' \(str\)"),
        ({"score": 1, "acc": [1]}, r"whose 'acc' is \[1\]"),
        (1j, "complex"),
    ],
)
def test_anything_else_is_refused_and_shown(returned: Any, message: str) -> None:
    with pytest.raises(RewardFailure, match=message):
        read_returned(returned)


def test_a_dict_may_carry_an_explanation_an_answer_and_more() -> None:
    score = read_returned({"score": 1, "explanation": "fine", "extracted": 7, "acc": True, "pred": "x", "none": None})
    assert score == Score(1.0, "7", "fine", {"acc": 1.0, "pred": "x"})


def call(function: Callable[..., Any], **arguments: Any) -> float | None:
    return UserFunction(function, "f", arguments=arguments).score(item("abc", "7", num_tokens=4)).value


def test_a_function_gets_the_documented_arguments_that_it_names() -> None:
    def everything(sample, response, answer, images, meta, num_tokens, finish_reason, *, bonus):  # type: ignore[no-untyped-def]
        assert (sample.answer, answer, response, images, dict(meta), finish_reason) == ("7", "7", "abc", (), {}, "stop")
        return num_tokens + bonus

    assert call(everything, bonus=0.5) == 4.5
    assert call(lambda response: len(response)) == 3.0
    assert call(lambda: 2) == 2.0
    assert call(lambda response, scale=10: len(response) * scale) == 30.0
    assert call(lambda **given: len(given)) == 7.0
    assert call(functools.partial(lambda response, factor: len(response) * factor, factor=2)) == 6.0


def test_an_async_function_is_awaited() -> None:
    async def later(response: str) -> float:
        await asyncio.sleep(0)
        return len(response) / 2

    assert call(later) == 1.5


def batch_of(returned: Any) -> list[float | str | None]:
    """The values (or errors) of three responses, scored by a function that returns `returned`."""
    scores = UserFunction(lambda response: returned, "f", batch=8).score_batch([item(text) for text in "abc"])
    return [str(score) if isinstance(score, RewardFailure) else score.value for score in scores]


def test_a_batch_function_gets_lists_and_returns_one_score_for_each() -> None:
    def lengths(response: list[str], answer: list[str], *, add: int) -> list[int]:
        return [len(text) + len(wanted) + add for text, wanted in zip(response, answer, strict=True)]

    function = UserFunction(lengths, "f", arguments={"add": 10}, batch=4)
    scores = function.score_batch([item("a", "7"), item("bb", "77")])
    assert [score.value for score in scores if isinstance(score, Score)] == [12.0, 14.0]
    assert function.score(item("ccc", "7")).value == 14.0


@pytest.mark.parametrize("returned", [[1, 0.5, None], (1, 0.5, None), [True, {"score": 0.5}, None]])
def test_each_element_of_a_batch_may_be_what_a_single_score_may_be(returned: Any) -> None:
    assert batch_of(returned) == [1.0, 0.5, None]
    assert batch_of(np.array([1, 0, 2])) == [1.0, 0.0, 2.0]


def test_one_bad_element_of_a_batch_costs_only_itself() -> None:
    first, second, third = batch_of([1.0, float("nan"), "1"])
    assert (first, second) == (1.0, "it returned nan; allowed: a finite number or bool, a dict with 'score', or None")
    assert str(third).startswith("it returned '1' (str)")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 1], "it returned 2 scores for 3 responses"),
        ([1, 1, 1, 1], "it returned 4 scores for 3 responses"),
        (1.0, "a batch returns a list of scores; it returned 1.0"),
        ({"score": 1}, "a batch returns a list of scores"),
        (np.ones((3, 1)), "a batch returns a list of scores"),
    ],
)
def test_a_batch_of_the_wrong_length_or_kind_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(RewardFailure, match=message):
        batch_of(returned)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (lambda respnse: 1, {}, "nothing gives its argument 'respnse'; did you mean 'response'?"),
        (lambda tokenizer: 1, {}, "nothing gives its argument 'tokenizer'"),
        (lambda response: 1, {"bonus": 1}, r"sets 'bonus', which it does not take \(it takes response\)"),
        (lambda response: 1, {"response": 1}, "sets 'response', which mmrl gives itself"),
        (lambda response, /: 1, {}, "'response' can only be given by position"),
    ],
)
def test_arguments_that_cannot_be_given_are_refused(
    function: Callable[..., Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        UserFunction(function, "f", arguments=arguments)


def test_a_function_is_loaded_from_a_file_and_can_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_reward.py").write_text("FACTOR = 3\n")
    file = tmp_path / "my_reward.py"
    file.write_text("from neighbour_of_reward import FACTOR\ndef score(response):\n    return FACTOR * len(response)\n")
    reward = FunctionReward(FunctionRewardConfig(path=str(file)))
    assert reward.score(item("ab")).value == 6.0


def test_a_function_is_loaded_from_a_module() -> None:
    assert load_function("math", "sqrt")(9) == 3.0


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "score", "does not exist"),
        ("def scores(response): return 1", "score", "has no function 'score' to score with; did you mean 'scores'?"),
        ("score = 3", "score", "something else than a function"),
        ("import nothing_of_this_name", "score", "does not load: ModuleNotFoundError"),
        ("def score(:", "score", "does not load: SyntaxError"),
        ("raise SystemExit(3)", "score", "does not load: SystemExit"),
    ],
)
def test_a_file_without_the_function_is_refused(tmp_path: Path, text: str | None, name: str, message: str) -> None:
    file = tmp_path / "my_reward.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_function(str(file), name)


def test_a_missing_module_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward module 'no\.such\.module' does not load"):
        load_function("no.such.module", "score")


def test_an_integer_larger_than_any_float_is_shown_and_a_score_of_none_explained() -> None:
    with pytest.raises(RewardFailure, match=r"it returned 10{76}\.\.\., larger than any float"):
        read_returned(10**400)
    with pytest.raises(RewardFailure, match="larger than any float"):
        read_returned(10**5000)
    assert "'score' is None" in (read_returned({"score": None}).explanation or "")
    assert read_returned({"score": None, "explanation": "too short"}).explanation == "too short"
