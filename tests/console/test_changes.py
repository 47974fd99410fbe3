"""A change is stored even where another rerun waits at the very moment."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def page() -> None:
    import os

    import streamlit as st
    from streamlit.runtime.scriptrunner import get_script_run_ctx
    from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

    from console.components.changes import changed

    def store(value: str) -> None:
        os.environ["MMRL_TEST_STORED"] = value

    store_it = changed("word", store)

    def with_a_rerun_that_waits() -> None:
        context = get_script_run_ctx()
        assert context is not None
        assert context.script_requests is not None
        context.script_requests.request_rerun(RerunData())
        store_it()

    st.text_input("Word", key="word", on_change=with_a_rerun_that_waits)
    st.text(os.environ.pop("MMRL_TEST_STORED", "nothing"))


def test_a_change_is_stored_where_a_rerun_waits() -> None:
    test = AppTest.from_function(page).run()
    test.text_input(key="word").set_value("kept").run()
    assert not test.exception
    assert test.text[0].value == "kept"
