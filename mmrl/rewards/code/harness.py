"""Runs inside the sandbox: loads a program, then tests that are code, and tells which of them passed.

A script of its own that imports nothing of mmrl. Its standard input is a secret mark on the first line and then the
tests, a Python list of texts. It prints `MARK index` for a test that passed, `MARK index reason` for another. A program
that ends the process early has passed nothing. What is compared is read as plain data,
past all that the program defines.
"""

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import decimal
import fractions
import os
import sys
import types

OWN = "__of_the_harness_"


def main() -> None:
    mark, _, rest = sys.stdin.read().partition("\n")
    tests = ast.literal_eval(rest)
    report = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    genuine = [(namespace, dict(namespace)) for namespace in (vars(builtins), globals())]
    fraction_as_it_was = {name: value for name, value in vars(fractions.Fraction).items() if callable(value)}
    names = load("solution.py")
    names |= {"function_named": lambda name: find(names, name)}
    for index, test in enumerate(tests):
        for namespace, as_it_was in genuine:  # a program may have bound abs anew
            dict.update(namespace, as_it_was)
        for name, value in fraction_as_it_was.items():
            setattr(fractions.Fraction, name, value)
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
        tree = ast.parse(test)
        given = without_shadows(tree, names) | {
            f"{OWN}equal": equal,
            f"{OWN}operand": operand,
            f"{OWN}operands": operands,
            f"{OWN}operate": operate,
        }
        known = dict(given)
        exec(compile(ast.fix_missing_locations(Guard().visit(tree)), "test", "exec"), known)
        names |= {name: value for name, value in known.items() if name not in given}
    except BaseException as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return ""


def without_shadows(tree: ast.AST, names: dict[str, object]) -> dict[str, object]:
    """The program's names for a test: its own `abs` is no builtin's, unless that is all that the test asks it for."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not any(name in names and not hasattr(builtins, name) for name in used):
        return dict(names)
    return {name: value for name, value in names.items() if not hasattr(builtins, name) or name.startswith("__")}


def find(names: dict[str, object], name: str) -> object:
    """A function of the program, or a method of its class Solution."""
    if name in names:
        return names[name]
    solution = names["Solution"]
    assert callable(solution)
    return getattr(solution(), name)


class Guard(ast.NodeTransformer):
    """`a == b` in a test becomes `equal(a, b)`; what is compared otherwise, or computed with, must be plain data."""

    is_strict = False

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        is_equality = len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)
        self.visit_within(node, is_strict=self.is_strict or not is_equality)
        if is_equality:
            return call("equal", node.left, node.comparators[0])
        if not all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.NotEq)) for op in node.ops):
            return node
        if len(node.ops) == 1:
            left, right = call("operands", node.left, node.comparators[0]), ast.Name("right", ast.Load())
            pair = ast.Compare(ast.Name("left", ast.Load()), node.ops, [right])
            arguments = ast.arguments([], [ast.arg("left"), ast.arg("right")], None, [], [], None, [])
            return ast.Call(ast.Lambda(arguments, pair), [ast.Starred(left, ast.Load())], [])
        node.left = call("operand", node.left)
        node.comparators = [call("operand", part) for part in node.comparators]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.visit_within(node, is_strict=True)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        left, right = ast.Name("left", ast.Load()), ast.Name("right", ast.Load())
        arguments = ast.arguments([], [ast.arg("left"), ast.arg("right")], None, [], [], None, [])
        operation = ast.Lambda(arguments, ast.BinOp(left, node.op, right))
        return call("operate", operation, node.left, node.right, ast.Constant(self.is_strict))

    def visit_within(self, node: ast.AST, *, is_strict: bool) -> None:
        before, self.is_strict = self.is_strict, is_strict
        self.generic_visit(node)
        self.is_strict = before


def call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(OWN + name, ast.Load()), list(arguments), [])


def operand(value: object) -> object:
    """What is compared by size: plain data, or what C code defines."""
    bare = plain(value)
    if bare is NOT_PLAIN and not is_static(type(value)):
        raise TypeError(f"a result of the type {type(value).__name__} is compared with plain data")
    return value if bare is NOT_PLAIN else bare


def operands(left: object, right: object) -> tuple[object, object]:
    """The same for two, which may also be objects of one class."""
    if type(left) is type(right) and plain(left) is NOT_PLAIN and plain(right) is NOT_PLAIN:
        return left, right
    return operand(left), operand(right)


def operate(operation: types.FunctionType, left: object, right: object, is_strict: bool) -> object:
    """The result of an operator, which an object of the program's own must not decide against plain data."""
    bare_left, bare_right = plain(left), plain(right)
    if bare_left is NOT_PLAIN and bare_right is NOT_PLAIN:
        return operation(left, right)
    result = operation(left if bare_left is NOT_PLAIN else bare_left, right if bare_right is NOT_PLAIN else bare_right)
    for value, bare in ((left, bare_left), (right, bare_right)):
        if bare is NOT_PLAIN and not is_numeric(type(value)) and (is_strict or type(result) is not type(value)):
            raise TypeError(f"a result of the type {type(value).__name__} is computed with plain data")
    return result


def equal(left: object, right: object) -> bool:
    """As plain data where one side is plain; else two objects of one class, by what they say."""
    bare_left, bare_right = plain(left), plain(right)
    if bare_left is not NOT_PLAIN or bare_right is not NOT_PLAIN:
        return bare_left is not NOT_PLAIN and bare_right is not NOT_PLAIN and bool(bare_left == bare_right)
    return type(left) is type(right) and bool(left == right)


class NotPlain(Exception):
    """A value has a part of a class that says itself what it equals."""


NOT_PLAIN = object()
DEQUE = object()
UNCHANGING = (type(None), bool, range, decimal.Decimal, datetime.date, datetime.datetime, datetime.time,
              datetime.timedelta, type(Ellipsis), type(NotImplemented))  # fmt: skip
MRO = type.__dict__["__mro__"].__get__
NUMERATOR, DENOMINATOR = fractions.Fraction._numerator, fractions.Fraction._denominator  # type: ignore[attr-defined]


def plain(value: object) -> object:
    """The value as numbers, texts and builtin collections, read past whatever its classes define; NOT_PLAIN if it has
    another part."""
    try:
        return bare(value)
    except NotPlain:
        return NOT_PLAIN


def bare(value: object) -> object:
    kind = type(value)
    if any(kind is one for one in UNCHANGING):
        return value
    bases = MRO(kind)
    for base, copied in COPIES.items():
        if base in bases:
            return copied(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and getattr(numpy, "generic", None) in bases:
        return bare(value.item())  # type: ignore[attr-defined]
    raise NotPlain


COPIES = {
    int: lambda value: int.__add__(value, 0),
    float: lambda value: float.__add__(value, 0.0) if value else float.__abs__(value),
    complex: lambda value: complex.__add__(value, 0),
    str: lambda value: str.__str__(value),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytes(bytearray.__getitem__(value, slice(None))),
    list: lambda value: [bare(one) for one in list.__iter__(value)],
    tuple: lambda value: tuple([bare(one) for one in tuple.__iter__(value)]),
    set: lambda value: {bare(one) for one in set.__iter__(value)},
    frozenset: lambda value: frozenset([bare(one) for one in frozenset.__iter__(value)]),
    dict: lambda value: {bare(key): bare(one) for key, one in dict.items(value)},
    type({}.keys()): lambda value: {bare(one) for one in value},
    collections.deque: lambda value: (DEQUE, [bare(one) for one in collections.deque.__iter__(value)]),
    fractions.Fraction: lambda value: fractions.Fraction(NUMERATOR.__get__(value), DENOMINATOR.__get__(value)),
}


def is_static(kind: type) -> bool:
    """Whether Python's own C code defines it."""
    return not type.__dict__["__flags__"].__get__(kind) & 1 << 9


def is_numeric(kind: type) -> bool:
    """Types whose operators are their library's: NumPy's arrays, and what C code defines."""
    return is_static(kind) or (kind.__module__ == "numpy" and is_from_a_library(kind))


def is_from_a_library(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return kind.__module__ != "solution" and getattr(module, kind.__qualname__.partition(".")[0], None) is not None


if __name__ == "__main__":
    main()
