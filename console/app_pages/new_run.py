"""The page New run."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("New run")
empty_state("No run is being prepared", "Choose a goal, a model and data to begin.")
