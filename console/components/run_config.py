"""The config of a run: its settings with who set them, what its parent had, and the whole as YAML."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from console import context
from console.components.parts import part, problem
from console.components.text import job_link
from console.services.comparing import ABSENT
from console.services.run_detail import ConfigView, config_view
from mmrl.config.dump import value_text
from mmrl.config.loading import Leaf
from mmrl.jobs.records import Job


def config(job: Job) -> None:
    with part("the config"):
        view = config_view(context.jobs(), job)
        if view.problem:
            problem(f"This version of mmrl does not take this config: {view.problem}")
        if view.parent is not None and view.lines:
            _against_parent(view, view.parent)
        if view.lines:
            _settings(view)
        st.subheader("YAML", help="As it was submitted, defaults included; secrets are left out.")
        st.download_button(
            "Download", view.yaml, file_name=f"{job.short_id}.yaml", mime="text/yaml", key="config-download"
        )
        st.code(view.yaml, language=None)


def _against_parent(view: ConfigView, parent: Job) -> None:
    st.subheader("Changed from its parent", help="Defaults included, as `mmrl config diff` tells them.")
    job_link(parent)
    if not view.differences:
        st.text("The same settings.")
        return
    rows = [[each.key, _shown(each.first), _shown(each.second)] for each in view.differences]
    frame = pd.DataFrame(rows, columns=["setting", "parent", "this run"])
    st.dataframe(frame, key="config-changes", hide_index=True, alt="Settings that differ from the parent's")


def _settings(view: ConfigView) -> None:
    st.subheader("Settings", help="set: told by the config. default: what it would be unsaid.")
    is_all = st.toggle("Defaults too", key="config-all")
    rows = [[line.key, line.value, line.origin] for line in view.lines if is_all or line.origin == "set"]
    frame = pd.DataFrame(rows, columns=["setting", "value", "origin"])
    st.dataframe(frame, key="config-settings", hide_index=True, alt="Settings of the run and their origins")


def _shown(leaf: Leaf | None) -> str:
    return ABSENT if leaf is None else value_text(leaf.value)
