"""Data sets in an object store, read through a real S3-compatible server."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import s3_server

from mmrl.data.ingest import add_dataset, validate
from mmrl.errors import DataError, MmrlError, NotFoundError


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket with a zip, and a folder of two splits."""
    import s3fs

    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    rows = [json.dumps({"prompt": f"What is {number}?", "answer": str(number)}) for number in range(6)]
    archive = tmp_path / "rows.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("train.jsonl", "\n".join(rows))
    with s3_server(monkeypatch, "data") as endpoint:
        store = s3fs.S3FileSystem(endpoint_url=endpoint)
        store.put_file(str(archive), "data/rows.zip")
        store.pipe_file("data/two/train.jsonl", "\n".join(rows[:4]).encode())
        store.pipe_file("data/two/test.jsonl", "\n".join(rows[4:]).encode())
        yield "s3://data"


def test_an_archive_in_a_bucket_is_registered_with_its_address_as_source(bucket: str) -> None:
    added = add_dataset(f"{bucket}/rows.zip", name="rows")
    assert added.info.splits["train"].num_rows == 6
    assert added.info.source == "s3://data/rows.zip"


def test_a_folder_in_a_bucket_is_read_with_its_splits(bucket: str) -> None:
    assert {name: info.num_rows for name, info in add_dataset(f"{bucket}/two", name="two").info.splits.items()} == {
        "test": 2,
        "train": 4,
    }


def test_validating_a_file_in_a_bucket_reads_every_row(bucket: str) -> None:
    survey = validate(f"{bucket}/two/train.jsonl", statistics=True)
    assert (survey.num_rows, survey.num_valid) == (4, 4)
    assert survey.columns == {"train": ("prompt", "answer")}


def test_what_is_not_there_and_a_whole_bucket_are_refused(bucket: str) -> None:
    with pytest.raises(NotFoundError, match="holds nothing"):
        validate(f"{bucket}/nothing.zip")
    with pytest.raises(DataError, match="names a whole bucket"):
        validate(bucket)


def test_a_store_that_does_not_answer_is_told_without_keys(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(MmrlError, match="cannot be read") as raised:
        validate(f"{bucket}/rows.zip")
    assert "a-secret-of-the-store" not in str(raised.value)
