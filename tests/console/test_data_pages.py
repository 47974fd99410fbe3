"""The pages of data in every home."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from homes import NASTY, Home

from mmrl.data.normalise import make_sample
from mmrl.data.registry import DatasetRegistry
from mmrl.jobs.database import Database
from mmrl.jobs.users import Users
from mmrl.types import Message, TextPart

VIEWS = {
    "rows": "Rows 1 to",
    "images": "",
    "statistics": "",
    "versions": "A version never changes",
    "make": "Split in two",
}
MOST_S = 1.0


def texts(test: Any) -> str:
    kinds = (test.text, test.caption, test.markdown, test.success, test.warning, test.error)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def test_the_list_names_every_data_set_with_its_state(any_home: Home, run_page: Callable[..., Any]) -> None:
    test = run_page("datasets", any_home)
    assert not test.exception
    if any_home.kind == "empty":
        assert "No data set yet" in texts(test)
    if any_home.kind == "broken":
        assert "files are gone" in texts(test)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_every_data_set_is_whole(view: str, any_home: Home, run_page: Callable[..., Any]) -> None:
    for name in any_home.datasets[:3]:
        test = run_page("dataset", any_home, name=name, view=view)
        assert not test.exception
        assert test.segmented_control(key="view").value == view
        if name == "shapes":
            assert VIEWS[view] in texts(test)


def test_rows_and_images_that_are_gone_leave_the_rest_of_the_page(
    shared_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    home = shared_home("broken")
    assert "the image is gone" in texts(run_page("dataset", home, name="shapes"))
    gone = run_page("dataset", home, name="gone")
    assert "The files of this version are gone" in texts(gone)


def test_a_name_that_is_not_there_says_which_are_near(
    shared_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    test = run_page("dataset", shared_home("small"), name="shape")
    assert not test.exception
    assert "nearest: shapes" in texts(test)


def test_x06_a_name_in_the_address_that_is_not_there_brings_no_link_and_no_image(
    shared_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    test = run_page("dataset", shared_home("small"), name="![a](https://example.org/a.png)")
    assert not test.exception
    assert "example" in texts(test)
    assert not [element for element in test.markdown if "](https://" in str(element.value)]


def test_x06_text_of_rows_is_shown_as_it_stands(
    fresh_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    home = fresh_home("empty")
    sample = make_sample((Message("user", (TextPart(NASTY),)),), NASTY, {"note": NASTY})
    DatasetRegistry().register("nasty", {"train": [sample]}, source=NASTY)
    test = run_page("dataset", home, name="nasty")
    assert [element.value for element in test.text].count(NASTY) == 2
    assert not [element for element in test.markdown if NASTY in str(element.value)]
    assert not [element for element in test.caption if NASTY in str(element.value)]


def test_pages_of_rows_are_turned_and_stay_in_the_address(
    shared_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    test = run_page("dataset", shared_home("small"), name="shapes")
    assert "Rows 1 to 10 of 24" in texts(test)
    test.button(key="page_later").click().run()
    assert "Rows 11 to 20 of 24" in texts(test)
    assert test.query_params["page"] in ("2", ["2"])
    again = run_page("dataset", shared_home("small"), name="shapes", page="3")
    assert "Rows 21 to 24 of 24" in texts(again)


def test_a_viewer_is_told_that_adding_data_takes_another_role(
    fresh_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    home = fresh_home("empty")
    with Database.open() as database:
        users = Users(database)
        users.add("Boss", role="admin")
        users.set_role(users.local().id, "viewer")
    test = run_page("datasets", home)
    test.file_uploader(key="files_0").set_value([("a.jsonl", b'{"prompt": "1?", "answer": "1"}', "text/plain")]).run()
    test.button(key="check_files").click().run()
    assert not test.exception
    assert "may not add data sets" in texts(test)


def test_k04_a_pickle_in_disguise_is_refused_in_words_and_nothing_is_kept(
    fresh_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    import pickle

    home = fresh_home("empty")
    test = run_page("datasets", home)
    test.file_uploader(key="files_0").set_value([("a.jsonl", pickle.dumps({"a": 1}), "text/plain")]).run()
    test.button(key="check_files").click().run()
    assert "a pickle by its content" in texts(test)
    assert not list(home.path.glob("uploads/*"))


def _adding_page() -> None:
    from console import context
    from console.components.adding import adding
    from console.services.uploads import Uploads

    adding(Uploads(context.viewer(), context.database().settings, max_bytes=1_000_000), max_mb=1)


def test_files_that_were_taken_are_in_no_uploader_any_more(fresh_home: Callable[[str], Home]) -> None:
    """Not even for a browser that is back before the next page was drawn, and has not forgotten them."""
    from streamlit.testing.v1 import AppTest

    home = fresh_home("empty")
    test = AppTest.from_function(_adding_page).run()
    first = test.file_uploader[0].proto.id
    test.file_uploader[0].set_value([("a.jsonl", b'{"prompt": "1?", "answer": "1"}', "text/plain")]).run()
    test.button(key="check_files").click().run()
    assert len(list(home.path.glob("uploads/*/files/*"))) == 1
    assert test.file_uploader[0].proto.id != first
    assert not [button for button in test.button if button.key == "check_files"]


def test_the_pages_take_at_most_a_second_on_the_large_home(
    shared_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    home = shared_home("large")
    for page, query in [("datasets", {}), *(("dataset", {"name": name}) for name in home.datasets[:1])]:
        test = run_page(page, home, **query)
        begun = time.process_time()
        test.run()
        assert time.process_time() - begun < MOST_S, page
