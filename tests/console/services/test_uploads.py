"""Data on its way in, from the browser's bytes to a registered data set."""

from __future__ import annotations

import io
import json
import pickle
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from console.services.checking import Checking, Report, report_of
from console.services.datasets import Catalogued
from console.services.processes import Processes, Task
from console.services.uploads import Upload, Uploads
from mmrl.data.registry import DatasetRegistry
from mmrl.errors import DataError, NotFoundError
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.users import Users

ROWS = [{"prompt": f"What is {number}?", "answer": str(number)} for number in range(5)]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    with Database.open() as opened:
        yield opened


@pytest.fixture
def uploads(database: Database) -> Uploads:
    return Uploads(Users(database).local(), JobsSettings(), max_bytes=1_000_000)


@pytest.fixture
def checking(database: Database, uploads: Uploads) -> Checking:
    return Checking(uploads, Processes(), Catalogued(Catalogue(database), Users(database).local()))


def jsonl(rows: list[dict[str, object]]) -> io.BytesIO:
    return io.BytesIO("\n".join(json.dumps(row) for row in rows).encode())


def zipped(members: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer


def png(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), (shade, shade, shade)).save(buffer, format="PNG")
    return buffer.getvalue()


def checked(checking: Checking, upload: Upload) -> Report:
    task = checking.check(upload)
    while not task.is_over:
        time.sleep(0.05)
        task = checking.check(upload)
    return checking.report(upload, task)


def registered(checking: Checking, upload: Upload, *, skip_bad: bool = False) -> Task:
    task = checking.register(upload, skip_bad=skip_bad)
    while not task.is_over:
        time.sleep(0.05)
        task = checking.registering(upload) or task
    return task


def test_x03_an_upload_name_is_never_a_path(uploads: Uploads, tmp_path: Path) -> None:
    for name in ("../../job.db", "..\\..\\job.db", "/etc/passwd", "C:\\x\\rows.jsonl"):
        upload = uploads.add_files([(name, jsonl(ROWS))])
        stored = Path(upload.source)
        assert stored.parent == uploads.folder(upload) / "files"
        assert stored.name.startswith("data")
        assert not {"/", "\\", ".."} & set(upload.shown)
    assert not list(tmp_path.rglob("job.db"))


def test_x03_of_several_files_a_name_that_is_a_path_is_replaced_and_a_plain_one_kept(uploads: Uploads) -> None:
    files = [("rows.jsonl", jsonl(ROWS)), ("../../evil.png", io.BytesIO(png(1))), ("a b.png", io.BytesIO(png(2)))]
    folder = Path(uploads.add_files(files).source)
    assert sorted(path.name for path in folder.iterdir()) == ["a b.png", "file-0001", "rows.jsonl"]


def test_x05_content_is_looked_at_whatever_the_name_says(uploads: Uploads) -> None:
    class Runs:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("ran",)

    with pytest.raises(DataError, match=r"rows\.jsonl: a pickle by its content"):
        uploads.add_files([("rows.jsonl", io.BytesIO(pickle.dumps(Runs())))])
    with pytest.raises(DataError, match=r"files that end in '\.pt' are pickles"):
        uploads.add_files([("model.pt", jsonl(ROWS))])
    assert uploads.all() == []


def test_k04_what_breaks_off_leaves_nothing_behind(uploads: Uploads, database: Database, tmp_path: Path) -> None:
    class Breaks(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 1024:
                raise OSError("the connection was reset")
            return super().read(1024)

    with pytest.raises(Exception, match="reset"):
        uploads.add_files([("rows.jsonl", Breaks(b"x" * 5000))])
    assert uploads.all() == []
    assert not [path for path in (tmp_path / "home" / "uploads").rglob("*") if path.is_file()]
    assert DatasetRegistry().names() == []


def test_k03_more_than_the_limit_is_refused_and_the_other_ways_are_named(uploads: Uploads) -> None:
    with pytest.raises(DataError, match="the limit of uploads") as raised:
        uploads.add_files([("rows.jsonl", io.BytesIO(b"x" * 600_000)), ("more.jsonl", io.BytesIO(b"x" * 600_000))])
    assert all(way in str(raised.value) for way in ("path on the server", "s3://", "hf://"))
    assert uploads.all() == []


def test_a_viewer_may_not_add_data(database: Database) -> None:
    viewer = Users(database).add("Vic", role="viewer")
    with pytest.raises(ForbiddenError, match="may not add data sets"):
        Uploads(viewer, JobsSettings(), max_bytes=1000).add_files([("rows.jsonl", jsonl(ROWS))])


def test_uploads_of_others_are_not_there_for_members(uploads: Uploads, database: Database) -> None:
    upload = uploads.add_files([("rows.jsonl", jsonl(ROWS))])
    member = Uploads(Users(database).add("Mia", role="member"), JobsSettings(), max_bytes=1000)
    assert member.all() == []
    with pytest.raises(NotFoundError, match="not there any more"):
        member.get(upload.id)
    with pytest.raises(NotFoundError):
        member.get("../../etc")


def test_a_server_path_must_lie_in_an_allowed_folder_links_resolved(database: Database, tmp_path: Path) -> None:
    allowed, secret = tmp_path / "data", tmp_path / "secret"
    allowed.mkdir(), secret.mkdir()
    (allowed / "rows.jsonl").write_bytes(jsonl(ROWS).getvalue())
    (secret / "rows.jsonl").write_bytes(jsonl(ROWS).getvalue())
    (allowed / "link").symlink_to(secret)
    uploads = Uploads(Users(database).local(), JobsSettings(), max_bytes=1, data_roots=[allowed])
    assert uploads.add_server_path(f"{allowed}/rows.jsonl").source == str(allowed / "rows.jsonl")
    for path in (f"{secret}/rows.jsonl", f"{allowed}/../secret/rows.jsonl", f"{allowed}/link/rows.jsonl"):
        with pytest.raises(DataError, match="in none of the folders"):
            uploads.add_server_path(path)
    with pytest.raises(DataError, match="begins with /"):
        uploads.add_server_path("rows.jsonl")


def test_addresses_are_those_of_stores_and_of_the_hub_and_no_local_folders(uploads: Uploads) -> None:
    assert uploads.add_address(" s3://bucket/rows.zip ").name == "rows"
    assert uploads.add_address("hf://owner/geometry3k@train").name == "geometry3k"
    for address in ("hf://./folder", "hf:///etc", "hf://~/x", "file:///etc/passwd", "http://x/y", "rows.jsonl"):
        with pytest.raises(DataError, match="not an address"):
            uploads.add_address(address)


def test_bad_rows_are_told_by_row_with_what_to_do_and_after_mending_all_is_registered(
    uploads: Uploads, checking: Checking
) -> None:
    lines = [json.dumps({"prompt": "<image>Which shade?", "images": [f"{n}.png"], "answer": str(n)}) for n in range(4)]
    members = {"train.jsonl": "\n".join(lines).encode(), "0.png": png(0), "1.png": png(1), "2.png": png(2)}
    upload = uploads.add_files([("shades.zip", zipped(members))])
    report = checked(checking, upload)
    assert report.sentence.startswith("1 of 4 rows cannot be used: ")
    assert [(row.file, row.row) for row in report.bad] == [("train.jsonl", 4)]
    assert "3.png" in report.bad[0].wrong + report.bad[0].mend
    assert report.bad[0].mend
    assert report.columns == ("prompt", "images", "answer")
    assert DatasetRegistry().names() == []
    mended = uploads.add_files([("shades.zip", zipped(members | {"3.png": png(3)}))])
    assert checked(checking, mended).sentence == "All 4 rows can be used."
    task = registered(checking, uploads.change(mended, name="shades"))
    assert checking.finish(mended, task) == "shades"
    info = DatasetRegistry().find("shades")
    assert (info.num_rows, info.source, list(info.splits)) == (4, "shades.zip", ["train"])
    assert [each.id for each in uploads.all()] == [upload.id]


def test_keeping_the_good_rows_registers_them_and_counts_the_others(
    uploads: Uploads, checking: Checking, database: Database
) -> None:
    upload = uploads.add_files([("sums.jsonl", jsonl([*ROWS, {"question": 3}]))])
    report = checked(checking, upload)
    assert report.can_keep_good_rows
    assert (report.num_rows, report.num_valid) == (6, 5)
    assert report.bad[0].file == "sums.jsonl"
    refused = registered(checking, upload, skip_bad=False)
    assert refused.state == "failed"
    assert DatasetRegistry().names() == []
    checking.finish(upload, registered(checking, upload, skip_bad=True))
    (listed,) = Catalogued(Catalogue(database), Users(database).local()).all()
    assert (listed.num_rows, listed.skipped, listed.owner) == (5, 1, Users(database).local().name)


def test_a_mapping_changes_what_is_found(uploads: Uploads, checking: Checking) -> None:
    rows = [{"prompt": f"What is {n}?", "label": str(n)} for n in range(3)]
    upload = uploads.add_files([("rows.jsonl", jsonl(rows))])
    assert "have no answer" in checked(checking, upload).warnings[0]
    mapped = checked(checking, uploads.change(upload, mapping={"answer": "label"}))
    assert (mapped.warnings, mapped.is_sound) == ((), True)


def test_what_is_no_data_set_is_told_by_the_names_that_the_person_knows(uploads: Uploads, checking: Checking) -> None:
    upload = uploads.add_files([("notes.docx", io.BytesIO(b"some words"))])
    report = checked(checking, upload)
    assert report.failure is not None
    assert "notes.docx" in report.sentence
    assert "/uploads/" not in report.failure


def test_the_sentence_names_the_one_fault_or_how_many_there_are() -> None:
    errors = [{"file": "a.jsonl", "row": row, "field": "answer", "message": "is 3; write text"} for row in (1, 2)]
    report = report_of({"rows": 9, "valid": 7, "errors": errors, "warnings": []}, "a.jsonl")
    assert report.sentence == "2 of 9 rows cannot be used: is 3 in 'answer'."
    assert report.bad[0].mend == "write text"
    errors[1] = errors[1] | {"message": "is 4"}
    several = report_of({"rows": 9, "valid": 7, "errors": errors, "warnings": []}, "a.jsonl")
    assert several.sentence == "2 of 9 rows cannot be used, for 2 different reasons, which the table tells."
