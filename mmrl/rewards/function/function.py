"""The reward `function`: a user's own function, by path or passed from Python.

It takes any of the documented arguments by name and returns a number, a dict with `score`, or None.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any, ClassVar

from mmrl.config.reward import FunctionRewardConfig
from mmrl.errors import ConfigError
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.function.loading import load_function

DOCUMENTED_ARGUMENTS = ("sample", "response", "answer", "images", "meta", "num_tokens", "finish_reason")
_ALLOWED = "a finite number or bool, a dict with 'score', or None"


class UserFunction(Reward):
    """A loaded function, called with those of the documented arguments that it names and its fixed ones.

    batch: None, or the most responses in one call; then each documented argument is a list, and so is what it returns.

    Raises:
        ConfigError: it needs an argument that nothing gives it, or is given one that it does not take.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        label: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        batch: int | None = None,
    ) -> None:
        self._function = function
        self._fixed = dict(arguments or {})
        self._wanted = _wanted_arguments(function, label, self._fixed)
        self.batch = batch

    def score(self, item: RewardItem) -> Score:
        if self.batch is not None:
            (score,) = self.score_batch([item])
            if isinstance(score, RewardFailure):
                raise score
            return score
        return read_returned(self._call({name: _argument(item, name) for name in self._wanted}))

    def score_batch(self, items: Sequence[RewardItem]) -> list[Score | RewardFailure]:
        returned = self._call({name: [_argument(item, name) for item in items] for name in self._wanted})
        if callable(getattr(returned, "tolist", None)) and getattr(returned, "ndim", None) == 1:
            returned = returned.tolist()
        if not isinstance(returned, (list, tuple)):
            raise RewardFailure(f"a batch returns a list of scores; it returned {_short(returned)}")
        if len(returned) != len(items):
            raise RewardFailure(f"it returned {len(returned)} scores for {len(items)} responses")
        return [read_or_fail(one) for one in returned]

    def _call(self, arguments: Mapping[str, Any]) -> Any:
        returned = self._function(**arguments, **self._fixed)
        return asyncio.run(_finish(returned)) if inspect.isawaitable(returned) else returned


class FunctionReward(UserFunction):
    """A function in a file or a module."""

    isolated: ClassVar[bool] = True

    def __init__(self, config: FunctionRewardConfig) -> None:
        name = config.name or "score"
        function = load_function(config.path, name)
        super().__init__(function, f"{config.path}:{name}", arguments=config.arguments, batch=config.batch)


def read_returned(returned: Any) -> Score:
    """What a function returned as a score: see the module's opening lines.

    Raises:
        RewardFailure: it is none of what is allowed; the message shows what it is.
    """
    if returned is None:
        return Score(None, explanation="the function returned None: no score")
    if not isinstance(returned, Mapping):
        return Score(_number(returned, "it returned"))
    if "score" not in returned:
        keys = ", ".join(map(repr, returned)) or "no keys"
        raise RewardFailure(f"it returned a dict without 'score' (its keys: {keys}); allowed: {_ALLOWED}")
    named = {key: returned[key] for key in ("extracted", "explanation") if returned.get(key) is not None}
    score = returned["score"]
    if score is None and "explanation" not in named:
        named["explanation"] = "the function returned a dict whose 'score' is None: no score"
    return Score(
        value=None if score is None else _number(score, "it returned a dict whose 'score' is"),
        extracted=str(named["extracted"]) if "extracted" in named else None,
        explanation=str(named["explanation"]) if "explanation" in named else None,
        extras={
            str(key): value if isinstance(value, str) else _number(value, f"it returned a dict whose {key!r} is")
            for key, value in returned.items()
            if key not in ("score", "extracted", "explanation") and value is not None
        },
    )


def read_or_fail(returned: Any) -> Score | RewardFailure:
    """The same, with what is wrong returned: in a batch it costs that response only."""
    try:
        return read_returned(returned)
    except RewardFailure as failure:
        return failure


def _number(value: Any, what: str) -> float:
    if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)):
        value = value.item()
    if not isinstance(value, Real):
        raise RewardFailure(f"{what} {_short(value)} ({type(value).__name__}); allowed: {_ALLOWED}")
    try:
        number = float(value)
    except OverflowError:
        raise RewardFailure(f"{what} {_short(value)}, larger than any float; allowed: {_ALLOWED}") from None
    if not math.isfinite(number):
        raise RewardFailure(f"{what} {value}; allowed: {_ALLOWED}")
    return number


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes out no integer of thousands of digits
        text = f"{type(value).__name__} of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."


def _argument(item: RewardItem, name: str) -> Any:
    match name:
        case "answer":
            return item.sample.answer
        case "images":
            return item.sample.images
        case "meta":
            return item.sample.meta
        case _:
            return getattr(item, name)


def _wanted_arguments(function: Callable[..., Any], label: str, fixed: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"reward function {label}: its arguments cannot be read ({error}); wrap it in a def"
        ) from None
    names = {parameter.name for parameter in parameters if parameter.kind in _BY_NAME}
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    for parameter in parameters:
        _check_parameter(parameter, label, fixed)
    for name in fixed:
        if name in DOCUMENTED_ARGUMENTS:
            raise ConfigError(f"reward function {label}: `arguments` sets {name!r}, which mmrl gives itself; rename it")
        if name not in names and not takes_all:
            raise ConfigError(
                f"reward function {label}: `arguments` sets {name!r}, which it does not take ({_list(names)})"
            )
    return tuple(name for name in DOCUMENTED_ARGUMENTS if takes_all or name in names)


def _check_parameter(parameter: inspect.Parameter, label: str, fixed: Mapping[str, Any]) -> None:
    if parameter.default is not parameter.empty or parameter.kind in _VARIADIC or parameter.name in fixed:
        return
    documented = ", ".join(DOCUMENTED_ARGUMENTS)
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise ConfigError(
            f"reward function {label}: its argument {parameter.name!r} can only be given by position; "
            f"arguments are given by name ({documented})"
        )
    if parameter.name not in DOCUMENTED_ARGUMENTS:
        near = get_close_matches(parameter.name, DOCUMENTED_ARGUMENTS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"reward function {label}: nothing gives its argument {parameter.name!r}; {hint}"
            f"allowed: {documented}; give others a default or set them under `arguments`"
        )


def _list(names: set[str]) -> str:
    return "it takes " + ", ".join(sorted(names)) if names else "it takes none"


async def _finish(awaitable: Any) -> Any:
    return await awaitable


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
