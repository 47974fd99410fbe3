"""The page Settings: the own account and its tokens, people, trackers and secrets, what this mmrl stands on."""

from __future__ import annotations

import streamlit as st

from console import context
from console.access import Access
from console.components.once import tell_once
from console.components.parts import part
from console.components.people import people
from console.components.settings_parts import facts, storage_figures, tracker_facts
from console.components.tokens import new_token, revoke_if_asked, token_list
from console.services import installation
from console.visitors import access, sign_out
from mmrl.jobs import accounts
from mmrl.jobs.users import Users

_PARTS = ("Account", "People", "Trackers", "Installation")
_WAYS = {
    Access.OPEN: "Only this machine reaches this console, so whoever opens it is this machine's account.",
    Access.PASSWORD: "Signed in by a password or a token.",
    Access.OIDC: "Signed in by your organisation's provider.",
}

_TRACKED = (
    "A run sends its metrics to what its config names under `track`. What counts is the environment of the worker that "
    "runs it; this is how it would be with the environment of this console."
)


def _account(users: Users) -> None:
    user = context.viewer()
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.text(f"{user.name}{f' ({user.email})' if user.email else ''}: {user.role}")
        if access() is not Access.OPEN and st.button("Sign out", key="sign_out"):
            sign_out()
    st.caption(f"{_WAYS.get(access(), '')} {accounts.ROLES[user.role]}")
    st.subheader("Tokens", help="A token speaks for you: to sign in here from another browser, or for a program.")
    token_list(users, user, user)
    st.subheader("New token")
    new_token(users, user, user)


def _trackers() -> None:
    st.write(_TRACKED)
    tracker_facts(installation.trackers())
    st.subheader("Secrets")
    st.write("No config holds a secret: it says `env:NAME` or `file:PATH`, and the worker's machine has the value.")
    facts(installation.secret_sources(), key="secrets")


def _installation() -> None:
    database = context.database()
    storage_figures(installation.storage(database))
    st.subheader("Database and workers")
    facts(installation.database_facts(database), key="database")
    st.subheader("Versions")
    facts(installation.versions(), key="versions")


st.title("Settings")
tell_once()
shown = st.segmented_control(
    "Part", _PARTS, default=_PARTS[0], key="part", bind="query-params", label_visibility="collapsed", required=True
)
with part(f"the part {shown}"):
    revoke_if_asked()
    if shown == "Trackers":
        _trackers()
    elif shown == "Installation":
        _installation()
    else:
        known = Users(context.database())
        _account(known) if shown == "Account" else people(known, context.viewer())
