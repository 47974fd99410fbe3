"""What is judged, as it stands on the page: however long, and in the direction of its own script."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

PLACES = 25_007


def _page() -> None:
    from console.components.label_item import item_view
    from console.services.label_drawing import Candidate, Item
    from mmrl.jobs.marks import Answer
    from mmrl.types import Message, Sample, TextPart

    texts = ("שלום", "word " * 5000 + "the end")
    prompt = Sample("p", (Message("user", (TextPart("Say it"),)),), "reference " * 3000)
    item = Item(prompt, tuple(Candidate(Answer("e", n), text, None, "x") for n, text in enumerate(texts)))
    item_view(item, (1, 0), lambda sha256: None)


def test_a_long_answer_is_there_whole_when_asked_for_and_right_to_left_goes_its_way() -> None:
    test = AppTest.from_function(_page).run()
    assert not test.exception
    assert any("unicode-bidi:plaintext" in str(each.proto) for each in test.get("html"))
    assert not any("the end" in text.value for text in test.text)
    button = next(each for each in test.button if each.label == f"Show all {PLACES:,} characters")
    button.click().run()
    assert [code.value[-7:] for code in test.code] == ["the end"]
    assert "Show less" in [each.label for each in test.button]
    assert len([each for each in test.button if each.label.startswith("Show")]) == 2, "of the reference too"
