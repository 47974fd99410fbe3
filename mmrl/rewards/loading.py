"""Loading a user's function from a Python file or a module, and the options that a decorator puts on one."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from mmrl.errors import ConfigError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class FunctionOptions:
    """How a function that is passed from Python counts and runs; see `reward`."""

    weight: float = 1.0
    name: str | None = None
    batch: int | None = None
    timeout_s: float = 10.0
    isolated: bool = True


def reward(
    *,
    weight: float = 1.0,
    name: str | None = None,
    batch: int | None = None,
    timeout_s: float = 10.0,
    isolated: bool = True,
) -> Callable[[Function], Function]:
    """Decorator of a reward function that is passed from Python.

    weight: factor in the total.
    name: name in metrics and samples; the function's own if not given.
    batch: most responses in one call; the function then takes lists and returns one score for each.
    timeout_s: seconds for one response (for a batch as many times that as it has); then it counts as failed.
    isolated: run in another process under the deadline. False runs it in the calling process, where it may use what
        lives there (a model on the GPU); there nothing can stop it if it hangs.
    """

    def mark(function: Function) -> Function:
        function.mmrl_options = FunctionOptions(weight, name, batch, timeout_s, isolated)  # type: ignore[attr-defined]
        return function

    return mark


def options_of(function: Callable[..., Any]) -> FunctionOptions:
    options = getattr(function, "mmrl_options", None)
    return options if isinstance(options, FunctionOptions) else FunctionOptions()


def load_function(path: str, name: str) -> Callable[..., Any]:
    """The function `name` of the Python file or the module `path`.

    A file's folder is appended to `sys.path`, so that it can import its neighbours.

    Raises:
        ConfigError: no such file or module, an error while it loads, or no such function in it.
    """
    module = _load_file(Path(path)) if _is_file_path(path) else _load_module(path)
    function = getattr(module, name, None)
    if callable(function):
        return function
    names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names) or 'no functions'}"
    what = "no function" if function is None else "something else than a function, namely"
    raise ConfigError(f"{path} has {what} {name!r} to score with; {hint}")


def _is_file_path(path: str) -> bool:
    return path.endswith(".py") or "/" in path or "\\" in path


def _load_file(path: Path) -> ModuleType:
    path = path.absolute()
    if not path.is_file():
        raise ConfigError(
            f"reward file {str(path)!r} does not exist; `path` is a Python file or a module's dotted name"
        )
    module_name = f"mmrl_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"reward file {str(path)!r} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        raise ConfigError(f"reward file {str(path)!r} does not load: {type(error).__name__}: {error}") from error
    return module


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        raise ConfigError(
            f"reward module {name!r} does not load: {type(error).__name__}: {error}; "
            "`path` is a Python file or a module's dotted name"
        ) from error
