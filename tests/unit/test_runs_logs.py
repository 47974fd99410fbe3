"""Logs that are read from their ends, never whole."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

from mmrl.runs.logs import read_after, read_before, search_before, start_of_last_lines
from mmrl.runs.run_logs import RunLogs


def test_the_last_piece_begins_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"first line\nsecond line\nthird\n")
    piece = read_before(path, max_bytes=20)
    assert (piece.text, piece.start, piece.end, piece.num_bytes) == ("second line\nthird\n", 11, 29, 29)
    earlier = read_before(path, piece.start)
    assert (earlier.text, earlier.start, earlier.end) == ("first line\n", 0, 11)


def test_a_line_longer_than_a_piece_is_given_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"x" * 50)
    piece = read_before(path, max_bytes=20)
    assert (piece.text, piece.start) == ("x" * 20, 30)
    assert read_before(path, 0).text == ""


def test_what_is_new_ends_with_a_line_unless_it_is_the_end(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"one\ntwo\nthree")
    piece = read_after(path, 4, max_bytes=6)
    assert (piece.text, piece.start, piece.end) == ("two\n", 4, 8)
    assert read_after(path, 8).text == "three"
    assert read_after(path, 99).text == ""


def test_text_that_is_no_utf_8_is_replaced_and_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"ok \xff\n")
    assert read_before(path).text == "ok \ufffd\n"


def test_last_lines_are_found_with_and_without_a_line_end(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"a\nb\nc\n")
    assert [start_of_last_lines(path, count) for count in (0, 1, 2, 3, 9)] == [6, 4, 2, 0, 0]
    path.write_bytes(b"a\nb\nc")
    assert [start_of_last_lines(path, count) for count in (1, 2)] == [4, 2]


def test_last_lines_of_many_blocks_are_those_of_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    lines = [b"%d %s\n" % (number, b"x" * 90) for number in range(30_000)]
    path.write_bytes(b"".join(lines))
    assert start_of_last_lines(path, 25_000) == sum(map(len, lines[:5000]))


def test_a_search_gives_the_last_matches_first_and_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"".join(b"step %d %s\n" % (step, b"Warning" if step % 10 == 0 else b"ok") for step in range(100)))
    found = search_before(path, "warning", max_matches=3)
    assert [match.line for match in found.matches] == ["step 90 Warning", "step 80 Warning", "step 70 Warning"]
    more = search_before(path, "WARNING", found.searched_from)
    assert [match.line for match in more.matches][:2] == ["step 60 Warning", "step 50 Warning"]
    assert (len(more.matches), more.searched_from) == (7, 0)
    assert read_after(path, more.matches[0].offset).text.startswith("step 60 Warning")


def test_a_search_reads_no_more_than_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    path.write_bytes(b"needle\n" + b"hay\n" * 1_000_000)
    found = search_before(path, "needle", max_bytes=2_000_000)
    assert found.matches == ()
    assert 0 < found.searched_from <= path.stat().st_size - 2_000_000
    assert [match.offset for match in search_before(path, "needle").matches] == [0]


def test_a_log_of_a_gigabyte_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "stderr.log"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 1 << 30)
        file.seek(0, 2)
        file.write(b"\nlast words\n")
    tracemalloc.start()
    assert read_before(path, max_bytes=1000).text.endswith("last words\n")
    assert start_of_last_lines(path, 1) == (1 << 30) + 1
    assert search_before(path, "last words", max_bytes=1 << 22).matches[0].line == "last words"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000


def test_logs_are_listed_by_attempt_and_links_are_left_out(tmp_path: Path) -> None:
    for attempt, name in ((1, "stderr.log"), (2, "stdout.log"), (2, "workers/rank-0.log")):
        path = tmp_path / f"attempt-{attempt}" / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("words\n")
    (tmp_path / "attempt-2" / "logs" / "passwd.log").symlink_to("/etc/passwd")
    logs = RunLogs(str(tmp_path))
    found = [(file.attempt, file.name, file.num_bytes) for attempt in logs.attempts(2) for file in logs.files(attempt)]
    assert found == [(1, "stderr.log", 6), (2, "stdout.log", 6), (2, "workers/rank-0.log", 6)]
    assert RunLogs(str(tmp_path / "nowhere")).attempts(2) == []
