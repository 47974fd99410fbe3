"""Stop strings, over a tokenizer whose tokens are bytes."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.engines.stopping import StopStrings

SPECIAL = 256


def decode(token_ids: Sequence[int]) -> str:
    return bytes(token_id for token_id in token_ids if token_id < SPECIAL).decode("utf-8", errors="replace")


def _length_when_stopped(text: str, *stop: str) -> int | None:
    """Bytes of `text` up to the one that completes a stop string, found as a decoding loop finds it."""
    stops = StopStrings(stop, decode)
    ids = list(text.encode())
    for length in range(1, len(ids) + 1):
        last = ids[max(0, length - stops.num_last_tokens) : length]
        if stops.within(last):
            return length
    return None


def test_a_response_stops_at_the_last_byte_of_the_first_stop_string_to_be_complete() -> None:
    assert _length_when_stopped("one two three", "three", "two") == len("one two")


def test_a_stop_string_of_several_bytes_a_letter_is_found_at_its_last_byte() -> None:
    text = "x" * 50 + "für alle"
    assert _length_when_stopped(text, "ü") == 50 + len("fü".encode())


def test_a_stop_string_far_behind_the_start_is_found_with_its_letters_whole() -> None:
    text = "ä" * 100 + "</answer> and more"
    assert _length_when_stopped(text, "</answer>") == 200 + len("</answer>")


def test_a_text_without_a_stop_string_does_not_stop() -> None:
    assert _length_when_stopped("one two thre", "three", "Two") is None


def test_tokens_without_text_inside_a_stop_string_do_not_hide_it() -> None:
    stops = StopStrings(["ab"], decode)
    ids = [ord("a"), SPECIAL, SPECIAL, ord("b")]
    assert stops.within(ids[-stops.num_last_tokens :])


def test_no_stop_strings_are_false() -> None:
    assert not StopStrings([], decode)
    assert StopStrings(["a"], decode)
