"""API tokens of one person: those that work, a new one whose text is shown once, and the end of one."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components.asking import answered, ask, asked
from console.components.once import say_once
from console.components.parts import attempted
from console.components.text import age, literal
from mmrl.jobs import accounts
from mmrl.jobs.records import ApiToken, User
from mmrl.jobs.users import Users

_REVOKE, _NEW = "revoke_token", "new_token_text"
_DAYS = {30: "30 days", 90: "90 days", 365: "a year"}


def token_list(users: Users, actor: User, owner: User) -> None:
    """owner: whose they are; of others only an admin sees them."""
    found = accounts.tokens(users, actor, owner.id)
    if not found:
        st.text("No tokens yet.")
    for token in found:
        _token(token, owner, may_revoke=accounts.may_change_tokens(actor))


def new_token(users: Users, actor: User, owner: User) -> None:
    """A form; what it makes is shown until the page is left."""
    if not accounts.may_change_tokens(actor):
        st.caption(
            "You signed in with a token, which makes and revokes no others. Sign in another way, or ask an admin."
        )
        return
    made: dict[str, str] = st.session_state.get(_NEW, {})
    if owner.id in made:
        with st.container(border=True, key="made_token"):
            st.markdown("**Copy it now: it is shown only this once.**")
            st.code(made[owner.id], language=None)
            if st.button("Done", key=f"token_done_{owner.id}"):
                del st.session_state[_NEW]
                st.rerun()
        return
    scopes = accounts.scopes_for(users, actor, owner)
    with st.form(f"new_token_{owner.id}", clear_on_submit=True):
        name = st.text_input("Name", key=f"token_name_{owner.id}", placeholder="where it is used, such as laptop")
        chosen = st.pills(
            "May",
            scopes,
            selection_mode="multi",
            default=[scope for scope in ("read",) if scope in scopes],
            format_func=lambda scope: accounts.SCOPES[scope],
            key=f"token_scopes_{owner.id}",
            help="What the token allows, within what the role allows.",
        )
        days = st.selectbox("Valid for", list(_DAYS), format_func=lambda number: _DAYS[number], key=f"days_{owner.id}")
        if st.form_submit_button("Make a token", key=f"make_token_{owner.id}"):
            with attempted():
                text, _ = accounts.create_token(users, actor, owner_id=owner.id, name=name, scopes=chosen, days=days)
                st.session_state[_NEW] = {owner.id: text}
                st.rerun()


def revoke_if_asked() -> None:
    """Opens the dialog that was asked for. Called by the page itself, before its parts."""
    if asked(_REVOKE):
        _confirm_revoke(*asked(_REVOKE))


def _token(token: ApiToken, owner: User, *, may_revoke: bool) -> None:
    with st.container(
        border=True, horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", key=token.id
    ):
        with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
            st.markdown(f"**{literal(token.name)}**", width="content")
            st.caption(literal(", ".join(sorted(token.scopes))), width="content")
            age(token.created_at, before="made")
            age(token.expires_at, before="ends")
            if token.last_used_at is None:
                st.caption("never used", width="content")
            else:
                age(token.last_used_at, before="used")
        if may_revoke and st.button("Revoke", key=f"revoke_{token.id}"):
            ask(_REVOKE, (owner.id, token.id, token.name))


@st.dialog("Revoke this token?", on_dismiss=answered(_REVOKE))
def _confirm_revoke(owner_id: str, token_id: str, name: str) -> None:
    st.text(f"{name}: whatever uses it is refused from now on. That cannot be undone.")
    if st.button("Revoke", type="primary", key="confirm_revoke"):
        with attempted():
            users = Users(context.database())
            accounts.revoke_token(users, context.viewer(), owner_id=owner_id, token_id=token_id)
            say_once("The token is revoked.")
            answered(_REVOKE)()
            st.rerun()
