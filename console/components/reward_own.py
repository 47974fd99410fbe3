"""Reward functions that people brought: their versions and sources, and a form to bring one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from console import context
from console.components.once import say_once
from console.components.parts import attempted, part, problem
from console.components.reward_task import set_rewards
from console.components.text import age, literal
from console.services.reward_work import function_text
from mmrl.jobs.reward_functions import MAX_BYTES, RewardFunction, RewardFunctions
from mmrl.jobs.roles import is_allowed
from mmrl.jobs.users import Users

_TEMPLATE = '''def score(response, answer, *, short=50):
    """1 for the answer's words in any order."""
    wanted, given = set(answer.lower().split()), set(response.lower().split())
    missing = sorted(wanted - given)
    return {"score": float(not missing), "explanation": f"missing: {', '.join(missing) or 'nothing'}"}
'''


def own(*, to_try: Callable[[], None]) -> None:
    """to_try: called to show the part Try."""
    functions = RewardFunctions(context.database(), context.viewer())
    with part("the reward functions"):
        found = functions.all()
        if not found:
            st.text("Nobody has brought a reward function yet.")
        for name in dict.fromkeys(each.name for each in found):
            _versions([each for each in found if each.name == name], to_try)
    if is_allowed(context.viewer(), "code", settings=context.database().settings):
        _form(functions)
    else:
        st.caption("Admins bring reward functions: they are code that runs with the rights of the workers.")


def _versions(versions: Sequence[RewardFunction], to_try: Callable[[], None]) -> None:
    newest = versions[0]
    people = {user.id: user.name for user in Users(context.database()).all()}
    with st.container(border=True, key=f"own-{newest.name}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{literal(newest.name)}**")
            chosen = newest
            if len(versions) > 1:
                known = {each.version: each for each in versions}
                label = "Version, the newest first"
                chosen = known[st.selectbox(label, list(known), key=f"own-version-{newest.name}", width=220)]
            else:
                st.caption(f"version {newest.version}")
            age(chosen.created_at, before=f"by {people.get(chosen.owner_id or '', 'somebody')},")
        if chosen.about:
            st.text(chosen.about)
        st.caption(literal(_takes(chosen)))
        st.code(function_text(chosen), language=None)
        st.button(
            "Try it on rows of a data set",
            key=f"try-{newest.name}",
            on_click=set_rewards,
            args=("try", function_text(chosen), to_try),
        )
        with st.expander("Source", key=f"source-{newest.name}"), attempted():
            st.code(chosen.source(), language=None)


def _takes(function: RewardFunction) -> str:
    settings = [
        setting.name if setting.default is None else f"{setting.name} (default {setting.default})"
        for setting in function.settings
    ]
    told = f"{function.function} takes {', '.join(function.takes)}"
    return f"{told}; can be set: {', '.join(settings)}" if settings else told


def _form(functions: RewardFunctions) -> None:
    with st.form("bring-reward", border=True):
        st.markdown("**Bring a reward function**")
        st.caption(
            "A file with a function that takes what it needs of response, answer, sample, images, meta, num_tokens and "
            "finish_reason. It is read and kept as a version, and never runs inside the console."
        )
        name = st.text_input("Name", key="bring-name", placeholder="short-and-right")
        file = st.file_uploader("Its file", type="py", key="bring-file", max_upload_size=1)
        source = st.text_area("or its source", key="bring-source", value=_TEMPLATE, height=180)
        function = st.text_input("Function", key="bring-function", placeholder="score, or the file's only one")
        if st.form_submit_button("Keep it"):
            with attempted():
                text = source
                if file is not None:
                    try:
                        text = file.getvalue()[: MAX_BYTES + 1].decode("utf-8")
                    except UnicodeDecodeError:
                        problem(f"{file.name} is no text in UTF-8; save it as such")
                        return
                made = functions.add(name.strip(), text, function.strip() or None)
                say_once(f"{made.name} is kept as version {made.version}.")
                st.rerun()
