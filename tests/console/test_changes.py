"""A change is stored even where another rerun waits, and what a browser repeats of before is no change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from homes import Home
from streamlit.testing.v1 import AppTest


def waiting_page() -> None:
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
    test = AppTest.from_function(waiting_page).run()
    test.text_input(key="word").set_value("kept").run()
    assert not test.exception
    assert test.text[0].value == "kept"


def page_of_two() -> None:
    """The sum of two numbers, to be written too, as the YAML of a draft is."""
    import streamlit as st

    from console.components.changes import changed, heard, tell

    numbers = st.session_state.setdefault("numbers", {"a": 1, "b": 2})
    heard()

    def written(text: str) -> None:
        numbers["a"], numbers["b"] = map(int, text.split())

    for name in numbers:
        if st.session_state.get(name) != numbers[name]:
            tell(name, numbers[name])
        st.number_input(
            name, key=name, step=1, on_change=changed(name, lambda new, name=name: numbers.update({name: new}))
        )
    text = " ".join(map(str, numbers.values()))
    if st.session_state.get("text") != text:
        tell("text", text)
    st.text_input("Text", key="text", on_change=changed("text", written))


def numbers_of(test: AppTest) -> dict[str, int]:
    return dict(test.session_state["numbers"])


def test_what_the_browser_had_before_it_was_told_undoes_nothing() -> None:
    test = AppTest.from_function(page_of_two).run()
    test.number_input(key="a").set_value(5).run()
    assert test.text_input(key="text").value == "5 2"
    test.number_input(key="b").set_value(7)
    test.text_input(key="text").set_value("1 2")  # as the browser still has it
    test.run()
    assert numbers_of(test) == {"a": 5, "b": 7}
    assert test.text_input(key="text").value == "5 7"


def test_what_was_before_can_be_written_again_once_the_browser_was_told() -> None:
    test = AppTest.from_function(page_of_two).run()
    test.number_input(key="a").set_value(5).run()
    test.run()  # the browser sends what it was told
    test.text_input(key="text").set_value("1 2").run()
    assert numbers_of(test) == {"a": 1, "b": 2}
    assert test.number_input(key="a").value == 1


def page_of_fields() -> None:
    """Beside the fields something whose change asks for another rerun, before theirs are stored."""
    import streamlit as st
    from streamlit.runtime.scriptrunner import get_script_run_ctx
    from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

    from console.components.address import keep_address
    from console.components.chat_settings import sampling_settings
    from console.components.reward_task import rewards_area

    def another_rerun() -> None:
        context = get_script_run_ctx()
        assert context is not None
        assert context.script_requests is not None
        context.script_requests.request_rerun(RerunData())

    keep_address()
    st.checkbox("Earlier", key="earlier", on_change=another_rerun)
    sampling_settings(None)
    rewards_area("try", "- {type: exact}")


@pytest.mark.parametrize("field", ["temperature", "rewards"])
def test_a_quick_change_of_a_setting_or_of_rewards_is_kept(fresh_home: Callable[[str], Home], field: str) -> None:
    fresh_home("empty")
    test = AppTest.from_function(page_of_fields).run()
    test.checkbox(key="earlier").check()
    if field == "temperature":
        test.number_input(key="chat-temperature").set_value(0.3).run()
    else:
        test.text_area(key="rewards-try").set_value("- {type: format}").run()
    assert not test.exception
    reloaded = AppTest.from_function(page_of_fields)
    reloaded.query_params.update(test.query_params)
    reloaded.run()
    if field == "temperature":
        assert reloaded.number_input(key="chat-temperature").value == 0.3
    else:
        assert reloaded.text_area(key="rewards-try").value == "- {type: format}"
