"""What a newcomer has to know to read cards of responses: what each reward of the run pays, what an advantage is."""

from __future__ import annotations

import streamlit as st

from console.components.text import literal
from console.services.run_rewards import Listed, RunRewards


def how_to_read(rewards: RunRewards) -> None:
    """Above the responses of a group."""
    if not rewards.listed:
        return
    with st.container(border=True, key="how-to-read", gap="xsmall"):
        for each in rewards.listed:
            st.markdown(_pays(each))
        st.caption(_sum_text(rewards))
        st.page_link("app_pages/rewards.py", label="How each is counted", query_params={"name": rewards.listed[0].type})


def _pays(each: Listed) -> str:
    name = literal(each.part) if each.part == each.type else f"{literal(each.part)} ({each.type})"
    return f"**{name}** × {each.weight:g}: {literal(each.pays)}"


def _sum_text(rewards: RunRewards) -> str:
    """weight: as the config has it; a card shows the weight that counted."""
    told = "Each card has a line for each of them: its value × its weight, and why. Together they make the **reward**. "
    by = f" (algorithm {literal(rewards.algorithm)})" if rewards.algorithm else ""
    return (
        f"{told}The **advantage**{by} tells how a response stands to the others of its group: above 0 the update made "
        "it more likely, below 0 less likely."
    )
