"""Archives: what may be unpacked, and that nothing is written of one that is refused."""

from __future__ import annotations

import io
import pickle
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from data_files import encoded, red_png
from PIL import Image

from mmrl.data import archives, load_dataset
from mmrl.data.archives import is_archive, unpack
from mmrl.data.sources import find_sources
from mmrl.errors import DataError


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are unpacked; also keeps MMRL_HOME apart."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return folder


def make_zip(path: Path, **members: bytes) -> Path:
    return zip_of(path, *members.items())


def zip_of(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def tar_of(path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for member in members:
            info, data = (
                (member, b"") if isinstance(member, tarfile.TarInfo) else (tarfile.TarInfo(member[0]), member[1])
            )
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def phone_photos(wrap: str = "") -> list[tuple[str, bytes]]:
    """Two photos as a phone takes them, lying on their side with the EXIF orientation that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = Image.new("RGB", (40, 20), "blue")
    rows = "file_name,question,answer\nIMG_0001.JPG,Which way up?,tall\nIMG_0002.jpeg,Which way up?,wide\n"
    return [
        (f"{wrap}metadata.csv", rows.encode()),
        (f"{wrap}IMG_0001.JPG", encoded(photo, "JPEG", exif=exif)),
        (f"{wrap}IMG_0002.jpeg", encoded(photo, "JPEG")),
        (f"__MACOSX/{wrap}._IMG_0001.JPG", b"resource fork"),
    ]


@pytest.mark.parametrize("wrap", ["", "Photos from June/"])
@pytest.mark.parametrize("kind", ["zip", "tar", "tgz"])
def test_archive_of_phone_photos_opens_upright(tmp_path: Path, wrap: str, kind: str) -> None:
    make = zip_of if kind == "zip" else tar_of
    dataset = load_dataset(make(tmp_path / f"photos.{kind}", *phone_photos(wrap)))
    assert [(image.width, image.height) for sample in dataset for image in sample.images] == [(20, 40), (40, 20)]
    assert [sample.answer for sample in dataset] == ["tall", "wide"]
    assert dataset[0].meta["source"] == "metadata.csv"


def test_heic_photo_is_an_error_of_its_row_that_says_what_to_do(tmp_path: Path) -> None:
    members = [phone_photos()[0], ("IMG_0001.JPG", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"), phone_photos()[2]]
    with pytest.raises(DataError, match=r"metadata.csv:2: file_name: 'IMG_0001.JPG': a HEIC or AVIF image .*as JPEG"):
        load_dataset(zip_of(tmp_path / "photos.zip", *members))


def test_archive_may_hold_splits_and_is_removed_when_done(tmp_path: Path, temporary: Path) -> None:
    path = make_zip(tmp_path / "d.zip", **{"d/train.jsonl": b'{"prompt": "a"}\n', "d/test.jsonl": b'{"prompt": "b"}\n'})
    sources = find_sources(path)
    assert sorted(sources) == ["test", "train"]
    assert len(list(temporary.iterdir())) == 1
    assert pickle.loads(pickle.dumps(sources["train"].unpacked)).path.is_dir()
    assert len(list(temporary.iterdir())) == 1, "a copy in another process removes nothing"
    del sources
    assert list(temporary.iterdir()) == []


def refusal(path: Path, temporary: Path, message: str) -> None:
    outside = sorted(path.parent.rglob("*"))
    with pytest.raises(DataError, match=message):
        find_sources(path)
    assert list(temporary.iterdir()) == []
    assert sorted(path.parent.rglob("*")) == outside


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../../x.jsonl", "leads out of the archive's folder"),
        ("a/../../x.jsonl", "leads out of the archive's folder"),
        ("..\\x.jsonl", "leads out of the archive's folder"),
        ("/abs/x.jsonl", "has an absolute path"),
        ("C:\\x.jsonl", "has an absolute path"),
        ("\\\\host\\x.jsonl", "has an absolute path"),
        ("y" * 300 + ".jsonl", "has a name that is too long"),
    ],
)
@pytest.mark.parametrize("make", [zip_of, tar_of])
def test_x01_member_that_leaves_the_folder_refuses_the_whole_archive(
    tmp_path: Path, temporary: Path, make: Callable[..., Path], name: str, message: str
) -> None:
    suffix = "zip" if make is zip_of else "tar"
    path = make(tmp_path / f"d.{suffix}", ("train.jsonl", b'{"prompt": "a"}\n'), (name, b"x"))
    refusal(path, temporary, f"member .* {message}; the archive is refused and nothing of it was written")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tarfile.SYMTYPE, "is a link"),
        (tarfile.LNKTYPE, "is a link"),
        (tarfile.CHRTYPE, "is a device"),
        (tarfile.FIFOTYPE, "is a device"),
    ],
)
def test_x02_link_or_device_in_a_tar_refuses_it(tmp_path: Path, temporary: Path, kind: bytes, message: str) -> None:
    path = tar_of(tmp_path / "d.tgz", ("train.jsonl", b"{}"), special("a", kind, "/tmp"), ("a/evil", b"x"))
    refusal(path, temporary, f"member 'a' {message}")


@pytest.mark.parametrize(("mode", "message"), [(stat.S_IFLNK, "is a link"), (stat.S_IFIFO, "is a device")])
def test_x02_link_or_device_in_a_zip_refuses_it(tmp_path: Path, temporary: Path, mode: int, message: str) -> None:
    link = zipfile.ZipInfo("a")
    link.external_attr = (mode | 0o777) << 16
    path = zip_of(tmp_path / "d.zip", ("train.jsonl", b"{}"), (link, b"/tmp"), ("a/evil", b"x"))
    refusal(path, temporary, f"member 'a' {message}")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_member_that_is_there_twice_or_a_file_and_a_folder_is_refused(tmp_path: Path, temporary: Path) -> None:
    refusal(zip_of(tmp_path / "a.zip", ("x", b"1"), ("./x", b"2")), temporary, "is there twice")
    refusal(zip_of(tmp_path / "b.zip", ("x", b"1"), ("x/y", b"2")), temporary, "'x' is a file and a folder")


def test_zip_bomb_is_refused_by_what_it_declares(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1000)
    bomb = zip_of(tmp_path / "bomb.zip", ("train.jsonl", b"\0" * 3_000_000))
    assert bomb.stat().st_size < 4000
    refusal(bomb, temporary, r"unpacks to more than [\d,]+ bytes \(200 times its own size")
    refusal(tar_of(tmp_path / "bomb.tgz", ("train.jsonl", b"\0" * 3_000_000)), temporary, "unpacks to more than")


def test_zip_bomb_is_refused_by_what_it_gives(tmp_path: Path, temporary: Path) -> None:
    path = zip_of(tmp_path / "liar.zip", ("train.jsonl", b"\0" * 100_000))
    data = path.read_bytes()
    declared = (100_000).to_bytes(4, "little")
    path.write_bytes(data.replace(declared, (1000).to_bytes(4, "little")))
    with pytest.raises(DataError, match=r"larger than the 1,000 bytes it declares|cannot be unpacked"):
        find_sources(path)
    assert list(temporary.iterdir()) == []


def test_header_of_a_tar_that_declares_gigabytes_is_not_read(tmp_path: Path, temporary: Path) -> None:
    path = tmp_path / "d.tar"
    info = special("pax", tarfile.XHDTYPE)
    info.size = 5 * 2**30
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 10240)
    refusal(path, temporary, "cannot be unpacked: .*a header of")


def test_damaged_and_encrypted_archives_are_refused(tmp_path: Path, temporary: Path) -> None:
    whole = zip_of(tmp_path / "a.zip", *phone_photos()).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    refusal(tmp_path / "cut.zip", temporary, "cannot be unpacked")
    tar = tar_of(tmp_path / "a.tgz", *phone_photos()).read_bytes()
    (tmp_path / "cut.tgz").write_bytes(tar[: len(tar) // 2])
    refusal(tmp_path / "cut.tgz", temporary, "cannot be unpacked")
    flagged = bytearray(zip_of(tmp_path / "b.zip", ("train.jsonl", b"{}")).read_bytes())
    flagged[flagged.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "secret.zip").write_bytes(flagged)
    refusal(tmp_path / "secret.zip", temporary, "is encrypted")


def test_samples_of_an_archive_are_the_same_whenever_it_is_unpacked(tmp_path: Path) -> None:
    path = zip_of(
        tmp_path / "pets.zip", *[(f"{name}/{index}.png", red_png()) for name in ("cat", "dog") for index in "12"]
    )
    first = load_dataset(path)
    assert [sample.answer for sample in first] == ["cat", "cat", "dog", "dog"]
    assert first[0].meta["source"] == "archive"
    assert load_dataset(path).samples == first.samples


def test_an_archive_is_known_by_its_content(tmp_path: Path) -> None:
    assert is_archive(zip_of(tmp_path / "photos.data", *phone_photos()))
    (tmp_path / "a.zip").write_text("no archive")
    assert not is_archive(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"ends in '.zip' and is no archive by its content \(10 bytes"):
        load_dataset(tmp_path / "a.zip")


def test_files_of_an_archive_get_no_more_rights_than_others(tmp_path: Path) -> None:
    runnable = zipfile.ZipInfo("train.jsonl")
    runnable.external_attr = (stat.S_IFREG | 0o6777) << 16
    folder = unpack(zip_of(tmp_path / "a.zip", (runnable, b"{}")))
    assert (folder.path / "train.jsonl").stat().st_mode & 0o7111 == 0


def test_x03_no_name_of_an_upload_becomes_a_path_of_the_store(tmp_path: Path) -> None:
    name = "job.db' --;"
    path = zip_of(tmp_path / "d.zip", ("metadata.csv", f'file_name,question\n"{name}",a\n'.encode()), (name, red_png()))
    (sample,) = load_dataset(path)
    stored = [file.name for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert stored == [sample.images[0].sha256]
