"""`mmrl token`: what speaks for people where they do not sign in, such as a script. Its text is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmrl.cli.output import JsonOption, note, print_json, print_table
from mmrl.cli.user import complete_user, opened

if TYPE_CHECKING:
    from mmrl.jobs.records import ApiToken, User
    from mmrl.jobs.users import Users

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke tokens.")

_USUAL = ("read", "submit", "control")
"""Scopes of a token for which none is named, as far as the role of its owner allows them."""

OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="USER",
        show_default=False,
        help="Whose: name, address or id; your own unless named.",
        autocompletion=complete_user,
    ),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Where it is used, such as laptop.")],
    user: OwnerOption = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            show_default=False,
            help="read, label, submit, control, data, code or admin; may be repeated. Unless named: read, submit, "
            "control.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=365, help="Valid for so long.")] = 90,
    json: JsonOption = False,
) -> None:
    """Make a token and print it, this once: the database has its hash only.

    Put it into a file or a secret store, and from there into MMRL_TOKEN: commands act for its owner then.
    """
    from mmrl.jobs.accounts import create_token, scopes_for

    with opened() as (users, actor):
        owner = _owner(users, actor, user)
        wanted = scope or [word for word in scopes_for(users, actor, owner) if word in _USUAL]
        text, made = create_token(users, actor, owner_id=owner.id, name=name, scopes=wanted, days=days)
    if json:
        print_json({"token": text, **_row(made)})
    else:
        print(text)
        note(
            f"token {made.id} of {owner.name}: {', '.join(sorted(made.scopes))}; valid until {_row(made)['expires_at']}"
        )
        note("it is told this once; give it to programs as MMRL_TOKEN or by a file, on no command line")


@app.command("list")
def list_tokens(user: OwnerOption = None, json: JsonOption = False) -> None:
    """List the tokens that are valid, the newest first."""
    from mmrl.jobs.accounts import tokens

    with opened() as (users, actor):
        owner = _owner(users, actor, user)
        found = tokens(users, actor, owner.id)
    if json:
        print_json([_row(token) for token in found])
    elif not found:
        note(f"{owner.name} has no valid token; `mmrl token create NAME` makes one")
    else:
        rows = [
            (token.id, token.name, ", ".join(sorted(token.scopes)), row["expires_at"], row["last_used_at"])
            for token in found
            for row in [_row(token)]
        ]
        print_table(rows, ["id", "name", "scopes", "valid until", "last used"])


@app.command()
def revoke(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", show_default=False, help="Id, the end of one, or name; not its text.")
    ],
    user: OwnerOption = None,
    json: JsonOption = False,
) -> None:
    """A token is worth nothing from now on."""
    from mmrl.jobs.accounts import revoke_token, tokens

    with opened() as (users, actor):
        owner = _owner(users, actor, user)
        found = _chosen(tokens(users, actor, owner.id), token, owner)
        revoke_token(users, actor, owner_id=owner.id, token_id=found.id)
    if json:
        print_json({"id": found.id, "name": found.name})
    else:
        print(found.id)
        note(f"token {found.name} of {owner.name} is revoked")


def _owner(users: Users, actor: User, ref: str | None) -> User:
    from mmrl.jobs.accounts import find_user

    return actor if ref is None else find_user(users, ref)


def _chosen(found: list[ApiToken], ref: str, owner: User) -> ApiToken:
    """Raises NotFoundError, which repeats nothing that may be a token's text."""
    from mmrl.errors import NotFoundError
    from mmrl.jobs.users import TOKEN_PREFIX

    if ref.startswith(TOKEN_PREFIX):
        raise NotFoundError("that is the text of a token, which should stand on no command line; give its id or name")
    fitting = [one for one in found if one.id == ref] or [
        one for one in found if one.name == ref or (len(ref) >= 4 and one.id.endswith(ref))
    ]
    if len(fitting) != 1:
        known = ", ".join(f"{one.id} ({one.name})" for one in found) or "none"
        raise NotFoundError(f"{len(fitting)} valid tokens of {owner.name} are {ref!r}; valid ones: {known}")
    return fitting[0]


def _row(token: ApiToken) -> dict[str, Any]:
    from mmrl.cli.job_text import time_text

    return {
        "id": token.id,
        "name": token.name,
        "user": token.user_id,
        "scopes": sorted(token.scopes),
        "created_at": time_text(token.created_at),
        "expires_at": time_text(token.expires_at),
        "last_used_at": time_text(token.last_used_at),
    }
