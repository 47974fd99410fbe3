"""What stands before every page: whoever may not read sees how to sign in, or why they may not."""

from __future__ import annotations

import streamlit as st

from console import context
from console.access import Access, oidc_provider
from console.visitors import access, is_signed_in_with_oidc
from mmrl.jobs.roles import check_allowed


def entered() -> bool:
    """Whether the page may be shown. Raises SignInNeededError and ForbiddenError, which say why not."""
    way = access()
    if way is Access.OPEN:
        return True
    if way is Access.OIDC and not is_signed_in_with_oidc():
        _offer_sign_in()
        return False
    check_allowed(context.viewer(), "read", settings=context.database().settings)
    return True


def _offer_sign_in() -> None:
    st.title("Sign in")
    st.write("This console is for those whom its admins have added.")
    if st.button("Sign in", type="primary", key="sign_in"):
        st.login(oidc_provider())
