"""The console. Its pages are not there yet: this one says where the same is done from a shell."""

from __future__ import annotations

import streamlit as st

st.set_page_config(page_title="mmrl", layout="centered")
st.title("mmrl")
st.write("The console is being built. Until it is there, everything is done from a shell:")
st.code(
    "mmrl dataset add PATH --name NAME\n"
    "mmrl job submit CONFIG\n"
    "mmrl worker start\n"
    "mmrl job list\n"
    "mmrl job logs JOB -f\n"
    "mmrl sample show RUN",
    language=None,
)
