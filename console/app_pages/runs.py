"""The page Runs."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("Runs")
empty_state("No runs yet", "Start one on the page New run.")
