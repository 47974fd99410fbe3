"""What is chosen quickly stays chosen: a browser that still holds an older address undoes nothing."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def page() -> None:
    import streamlit as st
    from streamlit.runtime.scriptrunner import get_script_run_ctx
    from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

    from console.components.address import change, keep_address, show_value, words
    from console.components.changes import changed

    keep_address()
    given = words()
    show_value("axis", "time" if given.get("x") == "time" else "step")
    show_value("smooth", given.get("smooth", "off"))

    def with_a_rerun_that_waits(new: str) -> None:
        context = get_script_run_ctx()
        assert context is not None
        assert context.script_requests is not None
        context.script_requests.request_rerun(RerunData(query_string=context.query_string))
        change(smooth=new, page=None)

    st.selectbox("Over", ["step", "time"], key="axis", on_change=changed("axis", lambda new: change(x=new)))
    st.selectbox("Smooth", ["off", "0.5", "0.9"], key="smooth", on_change=changed("smooth", with_a_rerun_that_waits))
    st.button("Both", key="both", on_click=lambda: change(x=None, smooth=None))
    st.text(" ".join(f"{name}={value}" for name, value in sorted(words().items())))


def shown(test: AppTest) -> str:
    assert not test.exception
    return str(test.text[0].value)


def opened(**query: str) -> AppTest:
    test = AppTest.from_function(page, default_timeout=60)
    test.query_params.update(query)
    return test.run()


def hold(test: AppTest, **query: str) -> AppTest:
    """The browser's address, whatever was written since."""
    test.query_params.clear()
    test.query_params.update(query)
    return test


def test_a_second_change_with_the_address_of_before_keeps_the_first() -> None:
    test = opened(id="7")
    test.selectbox(key="axis").set_value("time").run()
    hold(test, id="7").selectbox(key="smooth").set_value("0.5").run()
    assert shown(test) == "id=7 smooth=0.5 x=time"
    assert (test.selectbox(key="axis").value, test.selectbox(key="smooth").value) == ("time", "0.5")


def test_an_address_that_another_rerun_came_before_is_written_again() -> None:
    test = opened(id="7", page="3")
    test.selectbox(key="smooth").set_value("0.9").run()
    assert shown(test) == "id=7 smooth=0.9"
    assert dict(test.query_params) == {"id": "7", "smooth": "0.9"}


def test_a_link_to_elsewhere_counts_at_once() -> None:
    test = opened(id="7")
    test.selectbox(key="axis").set_value("time").run()
    assert shown(hold(test, id="8").run()) == "id=8"
    assert test.selectbox(key="axis").value == "step"


def test_what_was_before_can_be_gone_back_to_once_the_browser_has_the_address() -> None:
    test = opened(id="7")
    test.selectbox(key="axis").set_value("time").run()
    hold(test, id="7", x="time").run()
    assert shown(hold(test, id="7").run()) == "id=7"


def test_a_change_takes_names_out_and_leaves_the_others() -> None:
    test = opened(id="7", x="time", smooth="0.5")
    test.button(key="both").click().run()
    assert shown(test) == "id=7"


def page_that_is_left() -> None:
    """It has no widgets, as a page has none when a link begins it."""
    import streamlit as st

    from console.components.address import change, keep_address, words

    keep_address()
    if "is_left" not in st.session_state:
        st.session_state["is_left"] = True
        change(draft=None)
    st.text(" ".join(f"{name}={value}" for name, value in sorted(words().items())))


def test_a_link_back_to_the_address_of_before_counts_at_once() -> None:
    test = AppTest.from_function(page_that_is_left, default_timeout=60)
    test.query_params["draft"] = "1"
    assert shown(test.run()) == ""
    assert shown(hold(test, draft="1").run()) == "draft=1"


def test_a_change_that_comes_with_the_address_of_before_a_link_is_one_of_where_it_led() -> None:
    test = opened(id="7")
    hold(test, id="8").run()
    hold(test, id="7").selectbox(key="axis").set_value("time").run()
    assert shown(test) == "id=8 x=time"
