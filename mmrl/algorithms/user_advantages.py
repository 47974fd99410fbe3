"""Advantages from a function of the user's own, in a Python file that the config names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.config.advantage import AdvantageSource
from mmrl.errors import ConfigError, RunFailedError
from mmrl.user_code import load_function

if TYPE_CHECKING:
    from mmrl.algorithms.base import GroupScores


class UserAdvantages:
    """Calls the function with each group, or, where its first argument is named `groups`, once with all of them.

    It returns one number for each response of a group, or one for each token: (rollouts,) or (rollouts, T), as a tensor
    or as nested lists. What it says of tokens that the policy did not sample has no effect.

    Raises:
        ConfigError: the file or the function does not load, or does not take these arguments.
    """

    def __init__(self, source: AdvantageSource) -> None:
        assert source.path is not None
        self._label = f"advantage function '{source.name}' ({source.path})"
        self._arguments = dict(source.arguments)
        self._function = load_function(source.path, source.name, what="advantage", purpose="to take advantages from")
        self._takes_all = _takes_all(self._function, self._arguments, self._label)

    def __call__(self, groups: Sequence[GroupScores], mask: Tensor) -> Tensor:
        """(B, T) float32 with the rows of the groups in order, zero where mask is 0; mask: (B, T).

        Raises RunFailedError where the function raises or returns something else.
        """
        results = self._of_all(groups) if self._takes_all else [self._call(group) for group in groups]
        pairs = zip(results, groups, strict=True)
        checked = [self._checked(result, group, f"group {number}") for number, (result, group) in enumerate(pairs)]
        return torch.cat(checked).to(mask)

    def _of_all(self, groups: Sequence[GroupScores]) -> Sequence[Any]:
        results = self._call(list(groups))
        if not isinstance(results, list | tuple) or len(results) != len(groups):
            got = f"{len(results)} entries" if isinstance(results, list | tuple) else type(results).__name__
            raise RunFailedError(
                f"{self._label} got {len(groups)} groups and returned {got}; return a list with one each"
            )
        return results

    def _call(self, argument: Any) -> Any:
        try:
            return self._function(argument, **self._arguments)
        except (Exception, SystemExit) as error:
            raise RunFailedError(f"{self._label} raised {type(error).__name__}: {error}") from error

    def _checked(self, result: Any, group: GroupScores, where: str) -> Tensor:
        mask = group.mask.double()
        rows, width = mask.shape
        try:
            values = torch.as_tensor(result).detach().to("cpu", torch.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise RunFailedError(
                f"{self._label} returned {type(result).__name__} for {where}, which is no tensor of numbers ({error}); "
                f"return {rows} numbers, one for each response"
            ) from error
        if tuple(values.shape) not in {(rows,), (rows, width)}:
            raise RunFailedError(
                f"{self._label} returned shape {tuple(values.shape)} for {where}; return ({rows},), one number for "
                f"each response, or ({rows}, {width}), one for each token"
            )
        values = torch.where(mask > 0, values[:, None] if values.ndim == 1 else values, 0.0)
        if not values.isfinite().all():
            raise RunFailedError(
                f"{self._label} returned a number that is not finite for {where}, whose scores are "
                f"{group.scores.tolist()}; a group without spread divides by zero, say"
            )
        return values


def _takes_all(function: Callable[..., Any], arguments: dict[str, Any], label: str) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    try:
        signature.bind(None, **arguments)
    except TypeError as error:
        raise ConfigError(
            f"{label} is called with one group (or all of them, as `groups`) and the arguments "
            f"{', '.join(arguments) or '(none)'}: {error}"
        ) from error
    return next(iter(signature.parameters)) == "groups"
