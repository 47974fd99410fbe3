"""`mmrl user`: the people of this database and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mmrl.cli.output import JsonOption, note, print_json, print_table

if TYPE_CHECKING:
    from mmrl.jobs.records import User
    from mmrl.jobs.users import Users

app = typer.Typer(no_args_is_help=True, help="Add people, list them, and set what they may do.")

RoleWord = Literal["viewer", "member", "admin"]
_ROLES = "viewer: sees everything; member: starts and stops runs of their own, adds data; admin: everything."


def complete_user(incomplete: str) -> list[tuple[str, str]]:
    """Names for the shell; nothing where there is no database."""
    try:
        with opened() as (users, _):
            return [(user.name, user.role) for user in users.all() if user.name.startswith(incomplete)]
    except Exception:
        return []


UserArgument = Annotated[
    str,
    typer.Argument(metavar="USER", show_default=False, help="Name, address or id.", autocompletion=complete_user),
]


@contextmanager
def opened() -> Iterator[tuple[Users, User]]:
    """The users of the database, and who the command acts for."""
    from mmrl.cli.acting import actor_of
    from mmrl.jobs.database import Database
    from mmrl.jobs.users import Users

    with Database.open() as database:
        yield Users(database), actor_of(database)


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    role: Annotated[RoleWord, typer.Option(help=_ROLES)] = "member",
    email: Annotated[
        str,
        typer.Option(metavar="ADDRESS", show_default=False, help="The one that they sign in with, where OIDC is on."),
    ] = "",
    json: JsonOption = False,
) -> None:
    """Add somebody and print their id. Give them a token (`mmrl token create`) or let them sign in by their address."""
    from mmrl.jobs.accounts import add_person

    with opened() as (users, actor):
        user = add_person(users, actor, name=name, email=email, role=role)
    _tell(user, json=json)


@app.command("list")
def list_users(json: JsonOption = False) -> None:
    """List people by name."""
    from mmrl.jobs.accounts import people

    with opened() as (users, actor):
        found = people(users, actor)
    if json:
        print_json([_row(user) for user in found])
        return
    rows = [(user.name, user.role, user.email, user.is_disabled, user.id) for user in found]
    print_table(rows, ["name", "role", "address", "disabled", "id"])


@app.command()
def role(
    user: UserArgument,
    role: Annotated[RoleWord, typer.Argument(metavar="ROLE", show_default=False, help=_ROLES)],
    json: JsonOption = False,
) -> None:
    """Set somebody's role. The last admin stays one."""
    from mmrl.jobs.accounts import set_role

    _change(user, lambda users, actor, found: set_role(users, actor, found.id, role), json=json)


@app.command()
def disable(user: UserArgument, json: JsonOption = False) -> None:
    """Somebody can do nothing any more, nor can their tokens; their runs go on."""
    from mmrl.jobs.accounts import set_disabled

    _change(user, lambda users, actor, found: set_disabled(users, actor, found.id, True), json=json)


@app.command()
def enable(user: UserArgument, json: JsonOption = False) -> None:
    """Undo `disable`."""
    from mmrl.jobs.accounts import set_disabled

    _change(user, lambda users, actor, found: set_disabled(users, actor, found.id, False), json=json)


def _change(ref: str, change: Callable[[Users, User, User], User], *, json: bool) -> None:
    from mmrl.jobs.accounts import find_user

    with opened() as (users, actor):
        changed = change(users, actor, find_user(users, ref))
    _tell(changed, json=json)


def _tell(user: User, *, json: bool) -> None:
    if json:
        print_json(_row(user))
    else:
        print(user.id)
        note(f"{user.name}: {user.role}" + (", disabled" if user.is_disabled else ""))


def _row(user: User) -> dict[str, Any]:
    from mmrl.cli.job_text import time_text

    return {
        "id": user.id,
        "name": user.name,
        "role": user.role,
        "email": user.email,
        "is_disabled": user.is_disabled,
        "created_at": time_text(user.created_at),
    }
