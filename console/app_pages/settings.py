"""The page Settings."""

from __future__ import annotations

import streamlit as st

from console.components.parts import empty_state

st.title("Settings")
empty_state("Nothing to set yet", "Users, tokens and trackers are set here.")
