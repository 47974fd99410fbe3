"""The page Home."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("Home")
empty_state("Nothing to show yet", "Runs, what waits and machines are shown here.")
