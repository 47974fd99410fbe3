"""Loading a user's function from a Python file or a module, and the options that a decorator puts on one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from mmrl import user_code
from mmrl.config.reward_base import Normalisation

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class FunctionOptions:
    """How a function that is passed from Python counts and runs; see `reward`."""

    weight: float = 1.0
    name: str | None = None
    batch: int | None = None
    timeout_s: float = 10.0
    isolated: bool = True
    normalise: Normalisation = "none"


def reward(
    *,
    weight: float = 1.0,
    name: str | None = None,
    batch: int | None = None,
    timeout_s: float = 10.0,
    isolated: bool = True,
    normalise: Normalisation = "none",
) -> Callable[[Function], Function]:
    """Decorator of a reward function that is passed from Python.

    weight: factor in the total.
    name: name in metrics and samples; the function's own if not given.
    batch: most responses in one call; the function then takes lists and returns one score for each.
    timeout_s: seconds for one response (for a batch as many times that as it has); then it counts as failed.
    isolated: run in another process under the deadline. False runs it in the calling process, where it may use what
        lives there (a model on the GPU); there nothing can stop it if it hangs.
    normalise: how its values are brought to a scale before the weight in training, as in a config.
    """

    def mark(function: Function) -> Function:
        options = FunctionOptions(weight, name, batch, timeout_s, isolated, normalise)
        function.mmrl_options = options  # type: ignore[attr-defined]
        return function

    return mark


def options_of(function: Callable[..., Any]) -> FunctionOptions:
    options = getattr(function, "mmrl_options", None)
    return options if isinstance(options, FunctionOptions) else FunctionOptions()


def load_function(path: str, name: str) -> Callable[..., Any]:
    """The function `name` of the Python file or the module `path`; see `mmrl.user_code`.

    Raises:
        ConfigError: no such file or module, an error while it loads, or no such function in it.
    """
    return user_code.load_function(path, name, what="reward", purpose="to score with")
