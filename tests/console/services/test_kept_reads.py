"""What is kept of reads: within its bytes, the one that was not asked for longest going first."""

from __future__ import annotations

import pytest

from console.services.kept_reads import KeptReads


def test_what_was_not_asked_for_longest_goes_first_and_what_is_too_large_is_not_kept() -> None:
    kept, read = KeptReads[str](10), list[str]()

    def get(text: str) -> str:
        return kept.get(text, lambda: read.append(text) or text, len)  # type: ignore[func-returns-value]

    for text in ("1234", "abcd", "1234", "efgh", "1234", "abcd"):
        assert get(text) == text
    assert read == ["1234", "abcd", "efgh", "abcd"]
    for _ in range(2):
        assert get("x" * 11) == "x" * 11
    assert read[4:] == ["x" * 11] * 2
    assert get("1234") == "1234", "it is still there"
    assert len(read) == 6


def test_what_a_read_raises_is_not_kept() -> None:
    kept = KeptReads[int](10)
    with pytest.raises(ZeroDivisionError):
        kept.get("a", lambda: 1 // 0, lambda value: 1)
    assert kept.get("a", lambda: 7, lambda value: 1) == 7
