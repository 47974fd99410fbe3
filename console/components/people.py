"""People as admins see them: roles, who is disabled, somebody new, and their tokens."""

from __future__ import annotations

import streamlit as st

from console.components.once import say_once
from console.components.parts import attempted
from console.components.text import literal
from console.components.tokens import new_token, token_list
from mmrl.jobs import accounts
from mmrl.jobs.records import User
from mmrl.jobs.users import Users

_ROLES = list(accounts.ROLES)


def people(users: Users, actor: User) -> None:
    found = accounts.people(users, actor)
    if not accounts.is_admin(users, actor):
        st.write("Admins add people and change roles. They are:")
        for user in found:
            if user.role == "admin" and not user.is_disabled:
                st.text(f"{user.name}{f', {user.email}' if user.email else ''}")
        return
    for user in found:
        _person(users, actor, user)
    st.subheader("Add somebody")
    _add(users, actor)


def _person(users: Users, actor: User, user: User) -> None:
    with st.container(border=True, key=f"person_{_plain(user.id)}"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
                st.markdown(f"**{literal(user.name)}**", width="content")
                st.text(user.email or "no address")
                if user.id == actor.id:
                    st.badge("you", color="gray")
                if user.is_disabled:
                    st.badge("disabled", color="orange")
            with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
                _role(users, actor, user)
                _enable(users, actor, user)
        with st.expander("Tokens", key=f"tokens_{_plain(user.id)}", on_change="rerun") as opened:
            if opened.open:
                token_list(users, actor, user)
                new_token(users, actor, user)


def _role(users: Users, actor: User, user: User) -> None:
    chosen = st.selectbox(
        f"Role of {user.name}",
        _ROLES,
        index=_ROLES.index(user.role),
        key=f"role_{_plain(user.id)}_{user.role}",
        label_visibility="collapsed",
        help=" ".join(f"{role}: {meaning}" for role, meaning in accounts.ROLES.items()),
        width=130,
    )
    if chosen != user.role:
        with attempted():
            accounts.set_role(users, actor, user.id, chosen)
            say_once(f"{literal(user.name)} is a {chosen} now.")
            st.rerun()


def _enable(users: Users, actor: User, user: User) -> None:
    label = "Enable" if user.is_disabled else "Disable"
    is_self = user.id == actor.id
    if st.button(label, key=f"enable_{_plain(user.id)}", disabled=is_self, help="Disabled people can do nothing."):
        with attempted():
            accounts.set_disabled(users, actor, user.id, not user.is_disabled)
            say_once(f"{literal(user.name)} is {'enabled' if user.is_disabled else 'disabled'}.")
            st.rerun()


def _add(users: Users, actor: User) -> None:
    with st.form("add_person", clear_on_submit=True):
        name = st.text_input("Name", key="person_name")
        email = st.text_input("E-mail", key="person_email", help="By which OIDC knows them; not needed for tokens.")
        role = st.selectbox("Role", _ROLES, key="person_role", format_func=lambda one: f"{one} — {accounts.ROLES[one]}")
        if st.form_submit_button("Add", key="add_person_button"):
            with attempted():
                added = accounts.add_person(users, actor, name=name, email=email, role=role)
                say_once(f"{literal(added.name)} is added.")
                st.rerun()


def _plain(user_id: str) -> str:
    """An id as part of a key."""
    return "".join(char if char.isalnum() else "-" for char in user_id)
