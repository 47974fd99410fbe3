"""A full disk costs the run, never a half file or a half line."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runs_builders import begin_run, group, sample, store_image

from mmrl.data.images import ImageStore
from mmrl.errors import RunFailedError
from mmrl.runs.disk import JsonLines, link_or_copy, plain, read_json_lines, write_whole
from mmrl.runs.reader import RunReader


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a file system needs root; the limit on file size is tested without it")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096) == 4096:
                pass
        except OSError:
            pass


def test_a_full_disk_leaves_no_half_shard(small_disk: Path, tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    run_dir = small_disk / "run"
    writer = begin_run(run_dir)
    writer.samples(1, "train", [group([("first", 1.0)])], store_path=store.path)
    fill(small_disk)
    with pytest.raises(RunFailedError, match=r"train-000002\.parquet: No space left on device \(0 bytes free there\)"):
        writer.samples(2, "train", [group([(os.urandom(40_000).hex(), 1.0)])], store_path=store.path)
    assert [path.name for path in (run_dir / "attempt-1" / "samples").iterdir()] == ["train-000001.parquet"]
    assert RunReader(run_dir).steps("train") == [1]


def test_a_full_disk_leaves_no_half_image(small_disk: Path, tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    image = store_image(store)
    store.path(image).write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(100_000))
    writer = begin_run(small_disk / "run")
    fill(small_disk)
    with pytest.raises(RunFailedError, match="No space left"):
        writer.samples(1, "train", [group([("a", 1.0)], prompt=sample(images=[image]))], store_path=store.path)
    assert RunReader(small_disk / "run").image(image.sha256) is None
    assert not [path for path in small_disk.rglob("*.tmp") if path.is_file()]


def test_a_line_that_does_not_fit_is_taken_back_whole(small_disk: Path) -> None:
    writer = begin_run(small_disk / "run")
    writer.metrics(1, {"loss": 1.0})
    fill(small_disk)
    with pytest.raises(RunFailedError, match=r"metrics\.jsonl: No space left on device .* make room"):
        writer.metrics(2, {f"metric/{number}": 1.0 for number in range(2000)})
    (small_disk / "filler").unlink()
    writer.metrics(3, {"loss": 3.0})
    assert [row.step for row in RunReader(small_disk / "run").metrics()] == [1, 3]


def test_a_limit_on_file_size_leaves_neither_half_file_nor_half_line(tmp_path: Path) -> None:
    """As on a full disk, the system takes part of a write and refuses the rest."""
    script = """
import sys
from pathlib import Path
from mmrl.errors import RunFailedError
from mmrl.runs.disk import JsonLines, write_whole
folder = Path(sys.argv[1])
lines = JsonLines(folder / "lines.jsonl")
lines.append({"text": "fits"})
for attempt in (lambda: lines.append({"text": "x" * 10000}), lambda: write_whole(folder / "whole", b"x" * 10000)):
    try:
        attempt()
    except RunFailedError as error:
        print(error)
lines.append({"text": "fits too"})
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    first, second = done.stdout.splitlines()
    assert f"cannot write {tmp_path / 'lines.jsonl'}: File too large" in first
    assert f"cannot write {tmp_path / 'whole'}: File too large" in second
    assert [path.name for path in tmp_path.iterdir()] == ["lines.jsonl"]
    assert read_json_lines(tmp_path / "lines.jsonl") == [{"text": "fits"}, {"text": "fits too"}]


def test_a_folder_that_may_not_be_written_is_told_apart_from_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailedError, match=r"Not a directory .* check that the folder may be written"):
        write_whole(tmp_path / "file" / "x", b"")


def test_writing_whole_replaces_what_stood_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"first")
    write_whole(tmp_path / "a", b"second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"second"}


def test_two_threads_write_one_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have written, and neither has renamed, when the slower one goes on."""
    both, real = threading.Barrier(2), os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        both.wait(30.0)

    monkeypatch.setattr(os, "fsync", fsync)
    contents = (b"long " * 1000, b"short")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda content: write_whole(tmp_path / "a", content), contents))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() in contents


def test_a_link_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "target").write_bytes(b"old")
    link_or_copy(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"old"


def test_lines_hold_any_text_and_any_scalar(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "lines")
    lines.append({"text": "数字\u2028\ud800\n", "nan": float("nan"), "deep": {"list": (1, {2.5}, None, True)}})
    lines.close()
    assert (tmp_path / "lines").read_bytes().count(b"\n") == 1
    (row,) = read_json_lines(tmp_path / "lines")
    assert row["text"].startswith("数字\u2028")
    assert (row["nan"], row["deep"]) == (None, {"list": [1, [2.5], None, True]})


def test_plain_keeps_what_json_can_hold() -> None:
    assert json.loads(json.dumps(plain({"a": Path("/x"), 1: [float("-inf"), "t"]}))) == {"a": "/x", "1": [None, "t"]}
