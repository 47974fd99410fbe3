"""The page Data set."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("Data set")
empty_state("No data set is named", "Choose one on the page Data sets.")
