"""Loading a function of the user's own from a Python file or a module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from mmrl.errors import ConfigError


def load_function(path: str, name: str, *, what: str, purpose: str) -> Callable[..., Any]:
    """The function `name` of the Python file or the module `path`.

    A file's folder is appended to `sys.path`, so that it can import its neighbours.
    what, purpose: how errors name the file ('reward') and say what the function is for ('to score with').

    Raises:
        ConfigError: no such file or module, an error while it loads, or no such function in it.
    """
    module = _load_file(Path(path), what) if _is_file_path(path) else _load_module(path, what)
    function = getattr(module, name, None)
    if callable(function):
        return function
    names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names) or 'no functions'}"
    found = "no function" if function is None else "something else than a function, namely"
    raise ConfigError(f"{path} has {found} {name!r} {purpose}; {hint}")


def _is_file_path(path: str) -> bool:
    return path.endswith(".py") or "/" in path or "\\" in path


def _load_file(path: Path, what: str) -> ModuleType:
    path = path.absolute()
    if path.suffix != ".py":
        raise ConfigError(f"{what} file {str(path)!r} is not a Python file; its name must end in .py")
    if not path.is_file():
        raise ConfigError(
            f"{what} file {str(path)!r} does not exist; `path` is a Python file or a module's dotted name"
        )
    module_name = f"mmrl_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        raise ConfigError(f"{what} file {str(path)!r} does not load: {type(error).__name__}: {error}") from error
    return module


def _load_module(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        raise ConfigError(
            f"{what} module {name!r} does not load: {type(error).__name__}: {error}; "
            "`path` is a Python file or a module's dotted name"
        ) from error
