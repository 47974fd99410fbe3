"""The console's navigation: which pages there are and where. Each page is a file of its own in `app_pages`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from console.components.address import keep_address
from console.components.door import entered
from console.components.parts import part

PAGES = (
    st.Page("app_pages/home.py", title="Home", default=True),
    st.Page("app_pages/datasets.py", title="Data sets", url_path="datasets"),
    st.Page("app_pages/new_run.py", title="New run", url_path="new-run"),
    st.Page("app_pages/runs.py", title="Runs", url_path="runs"),
    st.Page("app_pages/compare.py", title="Compare", url_path="compare"),
    st.Page("app_pages/label.py", title="Label", url_path="label"),
    st.Page("app_pages/rewards.py", title="Rewards", url_path="rewards"),
    st.Page("app_pages/playground.py", title="Playground", url_path="playground"),
    st.Page("app_pages/cluster.py", title="Cluster", url_path="cluster"),
    st.Page("app_pages/settings.py", title="Settings", url_path="settings"),
    st.Page("app_pages/dataset.py", title="Data set", url_path="dataset", visibility="hidden"),
    st.Page("app_pages/run.py", title="Run", url_path="run", visibility="hidden"),
    st.Page("app_pages/responses.py", title="Responses", url_path="responses", visibility="hidden"),
)
_FOLDER = Path(__file__).parent

st.set_page_config(page_title="mmrl", page_icon=str(_FOLDER / "icon.svg"), layout="wide")
st.logo(str(_FOLDER / "logo.svg"), size="large")
st.html(_FOLDER / "style.css")
page = st.navigation(PAGES, position="top")
keep_address()
with part("this page"):
    if entered():
        page.run()
