"""`mmrl doctor`: what is installed, which devices there are, and what will and will not work here, with fixes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

from mmrl.cli.output import JsonOption, cell_text, fold, print_json, terminal_width, text_width

if TYPE_CHECKING:
    from mmrl.cli.checks import Check

_COLOURS = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW, "fail": typer.colors.RED}


def doctor(json: JsonOption = False) -> None:
    """Tell what is installed, which devices there are, and what will work. Exit code 1 if nothing will."""
    checks = run_checks()
    if json:
        print_json({"ok": not _failed(checks), "checks": checks})
    else:
        print("\n".join(report_lines(checks, terminal_width())))
    if _failed(checks):
        raise typer.Exit(1)


def run_checks() -> list[Check]:
    from mmrl.cli.checks.abilities import check_abilities
    from mmrl.cli.checks.machine import check_machine
    from mmrl.cli.checks.packages import check_packages

    return [*check_packages(), *check_machine(_torch()), *check_abilities()]


def report_lines(checks: Sequence[Check], width: int | None) -> list[str]:
    """A line a check under the heading of its group, details folded to `width`, a fix below what needs one."""
    column = max(text_width(check.name) for check in checks)
    indent = " " * (6 + column + 2) if width is None or width > column + 40 else " " * 8
    lines: list[str] = []
    for group in dict.fromkeys(check.group for check in checks):
        lines += ["", group] if lines else [group]
        for check in checks:
            if check.group == group:
                lines += _check_lines(check, column, indent, width)
    counts = {status: sum(check.status == status for check in checks) for status in ("ok", "warn", "fail")}
    return [*lines, "", f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failed"]


def _check_lines(check: Check, column: int, indent: str, width: int | None) -> list[str]:
    details = [cell_text(check.detail), *([f"fix: {cell_text(check.fix)}"] if check.fix else [])]
    if width is not None:
        details = [line for detail in details for line in fold(detail, width - len(indent))]
    head = f"{_status(check.status)}{check.name:<{column}}"
    if len(indent) == 6 + column + 2:
        return [f"{head}  {details[0]}", *(indent + line for line in details[1:])]
    return [head.rstrip(), *(indent + line for line in details)]


def _status(status: str) -> str:
    text = f"{status:<6}"
    return typer.style(text, fg=_COLOURS[status]) if _may_colour() else text


def _may_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _failed(checks: Sequence[Check]) -> bool:
    return any(check.status == "fail" for check in checks)


def _torch() -> Any | None:
    try:
        return import_module("torch")
    except Exception:
        return None
