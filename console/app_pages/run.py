"""The page Run."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("Run")
empty_state("No run is named", "Choose one on the page Runs.")
