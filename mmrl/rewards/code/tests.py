"""The tests of a sample, in the forms that data sets keep them in."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.rewards.base import RewardFailure

_INPUT, _OUTPUT = ("input", "stdin"), ("output", "stdout", "expected_output")
_FORMS = (
    "a list of {input, output}, {inputs: [...], outputs: [...]} (with fn_name for calls), a list of asserts, "
    "or Python code with asserts"
)


@dataclass(frozen=True)
class InputTest:
    """The program is run with `given` as its standard input and must print `expected`."""

    given: str
    expected: str


@dataclass(frozen=True)
class CodeTest:
    """Code that must run after the program without raising."""

    code: str


Test = InputTest | CodeTest


def read_tests(kept: Any) -> list[Test]:
    """The tests in what a column holds, as JSON text or as plain data.

    Raises:
        RewardFailure: it is none of the known forms, holds no test, or a test that is no Python.
    """
    if isinstance(kept, str):
        kept = _parsed(kept)
    tests = _read(kept)
    if not tests:
        raise RewardFailure(f"the sample has no tests (got {str(kept)[:80]!r}); tests are {_FORMS}")
    for number, test in enumerate(tests, 1):
        if isinstance(test, CodeTest):
            _check_python(number, test.code)
    return tests


def is_same_output(printed: str, expected: str) -> bool:
    """Equal but for space at the ends of lines and empty lines at the end."""
    return _lines(printed) == _lines(expected)


def _check_python(number: int, code: str) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RewardFailure(
            f"test {number} of the sample is no Python ({error}; got {code[:80]!r}); tests are {_FORMS}"
        ) from None


def _parsed(text: str) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read(kept: Any) -> list[Test]:
    if isinstance(kept, str):
        return [CodeTest(kept)] if kept.strip() else []
    if isinstance(kept, Mapping) and "inputs" in kept and "outputs" in kept:
        return _read_columns(kept)
    if isinstance(kept, Sequence):
        return [_read_one(one) for one in kept]
    raise RewardFailure(f"tests of the form {str(kept)[:80]!r} are not known; they are {_FORMS}")


def _read_columns(kept: Mapping[str, Any]) -> list[Test]:
    inputs, outputs, name = kept["inputs"], kept["outputs"], kept.get("fn_name")
    if len(inputs) != len(outputs):
        raise RewardFailure(f"the sample's tests have {len(inputs)} inputs and {len(outputs)} outputs")
    if name is None:
        return [InputTest(_text(given), _text(expected)) for given, expected in zip(inputs, outputs, strict=True)]
    return [_call(str(name), given, expected) for given, expected in zip(inputs, outputs, strict=True)]


def _call(name: str, arguments: Any, expected: Any) -> CodeTest:
    return CodeTest(f"assert function_named({name!r})(*{list(arguments)!r}) == {expected!r}")


def _read_one(one: Any) -> Test:
    if isinstance(one, str):
        return CodeTest(one)
    if isinstance(one, Mapping):
        given = next((one[key] for key in _INPUT if key in one), None)
        expected = next((one[key] for key in _OUTPUT if key in one), None)
        if given is not None and expected is not None:
            return InputTest(_text(given), _text(expected))
    raise RewardFailure(f"a test of the form {str(one)[:80]!r} is not known; tests are {_FORMS}")


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
