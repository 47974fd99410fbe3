"""`-v` and `-vv`: how much of a run's inner life is told on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Any

import typer

STAGES, CALLS = 1, 2
"""-v shows each stage with its time, -vv each call of workers and engines too."""

_package = logging.getLogger("mmrl")
_stages = logging.getLogger("mmrl.stage")


class _StderrHandler(logging.StreamHandler):
    """Writes to what sys.stderr is at that moment: a live progress bar puts its own stream there."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def set_verbosity(count: int) -> None:
    """0: warnings only; 1: stages and their times as well; 2 or more: everything that mmrl logs."""
    if not any(isinstance(handler, _StderrHandler) for handler in _package.handlers):
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        _package.addHandler(handler)
    _package.setLevel(logging.DEBUG if count >= CALLS else logging.WARNING)
    _stages.setLevel(logging.DEBUG if count >= CALLS else logging.INFO if count == STAGES else logging.WARNING)


def is_debugging() -> bool:
    """True under -vv."""
    return _package.isEnabledFor(logging.DEBUG)


def _raise_verbosity(ctx: typer.Context, count: int) -> int:
    """The option may stand before and after the command's name: the louder of both counts."""
    louder = max(count, ctx.meta.get("mmrl.verbosity", 0))
    ctx.meta["mmrl.verbosity"] = louder
    set_verbosity(louder)
    return count


VerboseOption = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        callback=_raise_verbosity,
        show_default=False,
        metavar="",
        help="Tell each stage with its time; -vv each call of workers and engines too.",
    ),
]
