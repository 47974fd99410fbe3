"""The page Cluster."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("Cluster")
empty_state("No workers yet", "Start one with `mmrl worker start`.")
