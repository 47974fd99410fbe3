"""A command group that knows its commands by name and help text, and loads one only when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class LazyCommand:
    """`module` holds a Typer named `app`, or a function of the command's name."""

    name: str
    module: str
    help: str


class LazyGroup(TyperGroup):
    """Help and completion list stand-ins; the real command takes its place once its name is called."""

    lazy_commands: tuple[LazyCommand, ...] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for lazy in self.lazy_commands:
            self.add_command(TyperCommand(lazy.name, help=lazy.help, rich_markup_mode=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        for lazy in self.lazy_commands:
            if args and args[0] == lazy.name:
                self.add_command(load_command(lazy), lazy.name)
        return super().resolve_command(ctx, args)


def load_command(lazy: LazyCommand) -> Any:
    """The command itself. Its help is plain text like the group's, whatever its module chose."""
    module = import_module(lazy.module)
    parent = typer.Typer(add_completion=False, rich_markup_mode=None)
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=lazy.name)
    else:
        parent.command(lazy.name)(getattr(module, lazy.name))
    return typer.main.get_group(parent).commands[lazy.name]
