"""The page Data sets."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("Data sets")
empty_state("No data sets yet", "Upload files or an archive, or name a path, to begin.")
