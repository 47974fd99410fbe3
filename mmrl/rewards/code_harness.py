"""Runs inside the sandbox: loads a program, then tests that are code, and tells which of them passed.

A script of its own that imports nothing of mmrl. Its standard input is a secret mark on the first line and then the
tests, a Python list of texts. It prints `MARK index` for a test that passed, `MARK index reason` for another. A program
that ends the process early has passed nothing; one that is made to equal everything equals nothing.
"""

from __future__ import annotations

import ast
import os
import sys
import types


def main() -> None:
    mark, _, rest = sys.stdin.read().partition("\n")
    tests = ast.literal_eval(rest)
    report = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    names = load("solution.py")
    names |= {"equal": equal, "function_named": lambda name: find(names, name)}
    for index, test in enumerate(tests):
        trouble = run(test, names)
        report.write(f"{mark} {index} {trouble}\n" if trouble else f"{mark} {index}\n")
        report.flush()


def load(path: str) -> dict[str, object]:
    """The names of a program that is loaded as a module, so that its main part does not run."""
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
    return module.__dict__


def run(test: str, names: dict[str, object]) -> str:
    """What went wrong, on one line; empty where nothing did."""
    try:
        exec(compile(ast.fix_missing_locations(Guard().visit(ast.parse(test))), "test", "exec"), names)
    except BaseException as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return ""


def find(names: dict[str, object], name: str) -> object:
    """A function of the program, or a method of its class Solution."""
    if name in names:
        return names[name]
    solution = names["Solution"]
    assert callable(solution)
    return getattr(solution(), name)


class Guard(ast.NodeTransformer):
    """`a == b` in a test becomes `equal(a, b)`."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            return ast.Call(ast.Name("equal", ast.Load()), [node.left, node.comparators[0]], [])
        return node


def equal(left: object, right: object) -> bool:
    return has_own_equality(left) == has_own_equality(right) and bool(left == right)


def has_own_equality(value: object) -> bool:
    """Whether the program itself says what equals the value, or a part of it."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)) and any(map(has_own_equality, value)):
        return True
    return any("__eq__" in vars(kind) and not is_from_a_library(kind) for kind in type(value).__mro__)


def is_from_a_library(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return kind.__module__ != "solution" and getattr(module, kind.__qualname__.partition(".")[0], None) is not None


if __name__ == "__main__":
    main()
