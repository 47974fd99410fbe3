"""What the pages ask for: questions to job database, run directories and data sets, answered as dataclasses.

No streamlit here, so that commands and tests use the same functions, and no torch: what needs it runs as a process.
"""
