"""Data on its way in: what a person gave, until it is checked and registered.

    <root>/<id>/upload.json      who gave it, what it is called, how its rows are to be read
    <root>/<id>/files/           its files, where they came through the browser, under names that are never paths

Nothing is registered before every row was read. A reload of the page, or a restart of the console, loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO
from uuid import uuid4

from mmrl.config.base import home
from mmrl.data.files import NAME_PATTERN, explain_write_errors, write_bytes
from mmrl.data.formats.content import HEAD_BYTES, refuse_pickle, refuse_pickle_name
from mmrl.data.formats.hub import is_hub_address
from mmrl.data.layout import name_of_file_split
from mmrl.data.remote import SCHEMES, is_remote_address
from mmrl.errors import DataError, NotFoundError
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.settings import JobsSettings

OTHER_WAYS = "Larger data goes around the browser: give its path on the server, an s3:// address, or hf://NAME@SPLIT."
_ID = re.compile(r"[0-9a-f]{12}")
_PLAIN_NAME = re.compile(r"\w[\w .()+@=,-]{0,199}")
_SUFFIX = re.compile(r"(\.tar)?\.[A-Za-z0-9]{1,10}\Z")
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Upload:
    """shown: what the person called it. source: the path or address that is read. name: to register it under.

    split, mapping, images_first, benchmark: how rows are read, as in `mmrl dataset add`.
    """

    id: str
    owner_id: str
    shown: str
    source: str
    num_bytes: int | None = None
    name: str = ""
    split: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    images_first: bool = False
    benchmark: str | None = None

    @property
    def stamp(self) -> str:
        """Changes with all that decides what a check of it finds."""
        read = {**asdict(self), "name": ""}
        return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def words(self) -> list[str]:
        """What `mmrl dataset validate` and `add` take for it."""
        words = [self.source]
        words += ["--split", self.split] if self.split else []
        words += [word for pair in self.mapping.items() for word in ("--map", "=".join(pair))]
        words += ["--images-first"] if self.images_first else []
        return words + (["--benchmark", self.benchmark] if self.benchmark else [])


class Uploads:
    """actor: who looks; they see their own uploads, an admin all. max_bytes: of one upload, all files together."""

    def __init__(
        self,
        actor: User,
        settings: JobsSettings,
        *,
        max_bytes: int,
        data_roots: Sequence[Path] = (),
        root: Path | None = None,
    ) -> None:
        self._actor, self._settings = actor, settings
        self._max_bytes = max_bytes
        self.data_roots = tuple(data_roots)
        self._root = root if root is not None else home() / "uploads"

    def add_files(self, files: Sequence[tuple[str, IO[bytes]]]) -> Upload:
        """Takes what came through the browser: all of it or nothing. files: (name as the browser tells it, content).

        Raises DataError for pickles, by name or content, and for more than is allowed.
        """
        self._check()
        if not files:
            raise DataError("no file was chosen; choose a file, several, or a zip of a folder")
        folder = self._root / f".{uuid4().hex}.tmp"
        names = _stored_names([name for name, _ in files])
        try:
            with explain_write_errors(folder):
                (folder / "files").mkdir(parents=True)
                num_bytes = 0
                for stored, (shown, content) in zip(names, files, strict=True):
                    num_bytes += self._store(folder / "files" / stored, _base_name(shown), content, num_bytes)
            return self._keep(folder, files, names, num_bytes)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def add_server_path(self, text: str) -> Upload:
        """Takes a file or folder of the server. Raises DataError for one outside of the folders that are allowed."""
        self._check()
        path = Path(text.strip()).expanduser()
        if not text.strip() or not path.is_absolute():
            raise DataError(f"a path on the server begins with / (got {text.strip()!r})")
        roots = [root.expanduser().resolve() for root in self.data_roots]
        resolved = path.resolve()
        if not any(resolved.is_relative_to(root) for root in roots):
            allowed = ", ".join(map(str, roots)) or "none so far"
            raise DataError(
                f"{path} is in none of the folders that data may come from ({allowed}); move it there, or ask an admin "
                "to add its folder to data_roots in console.yaml"
            )
        if not resolved.exists():
            raise NotFoundError(f"{path} does not exist on the server; look at its spelling")
        return self._new(shown=resolved.name, source=str(resolved), split=None)

    def add_address(self, text: str) -> Upload:
        """Takes an object store's or the hub's address; nothing is fetched yet."""
        self._check()
        address = text.strip()
        is_local = address.removeprefix("hf://").startswith((".", "/", "~"))
        if not (is_remote_address(address) or (is_hub_address(address) and not is_local)):
            raise DataError(
                f"not an address of a store or of the hub: {address!r}; write s3://BUCKET/PATH or "
                f"hf://OWNER/NAME@SPLIT (known: {', '.join(SCHEMES)}, hf)"
            )
        return self._new(shown=address, source=address, split=None)

    def all(self) -> list[Upload]:
        """Those that are not registered yet, newest first."""
        files = sorted(self._root.glob("*/upload.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        found = [upload for file in files if (upload := _read(file)) is not None]
        return [upload for upload in found if self._may_see(upload)]

    def get(self, upload_id: str) -> Upload:
        upload = _read(self._root / upload_id / "upload.json") if _ID.fullmatch(upload_id) else None
        if upload is None or not self._may_see(upload):
            raise NotFoundError("this upload is not there any more: it was registered, or thrown away; upload it again")
        return upload

    def change(self, upload: Upload, **settings: object) -> Upload:
        """Other words on how it is read, or another name."""
        self._check()
        self.get(upload.id)
        changed = replace(upload, **settings)  # type: ignore[arg-type]
        self._write(changed)
        return changed

    def remove(self, upload: Upload) -> None:
        """Forgets it, its files too. Doing so again changes nothing."""
        self._check()
        if _ID.fullmatch(upload.id) and self._may_see(upload):
            shutil.rmtree(self._root / upload.id, ignore_errors=True)

    def folder(self, upload: Upload) -> Path:
        return self._root / upload.id

    def _check(self) -> None:
        check_allowed(self._actor, "data", settings=self._settings)

    def _may_see(self, upload: Upload) -> bool:
        return upload.owner_id == self._actor.id or self._actor.role == "admin"

    def _store(self, path: Path, shown: str, content: IO[bytes], before: int) -> int:
        """Bytes written. The server looks at the content itself: what a browser says of a file proves nothing."""
        refuse_pickle_name(Path(shown))
        content.seek(0)
        head = content.read(HEAD_BYTES)
        refuse_pickle(head, Path(shown))
        content.seek(0)
        written = 0
        with path.open("xb") as file:
            while block := content.read(_COPY_BYTES):
                written += len(block)
                if before + written > self._max_bytes:
                    raise DataError(f"more than {self._max_bytes / 1e6:.0f} MB, the limit of uploads. {OTHER_WAYS}")
                file.write(block)
        return written

    def _keep(self, folder: Path, files: Sequence[tuple[str, IO[bytes]]], names: Sequence[str], size: int) -> Upload:
        first = _base_name(files[0][0])
        is_single = len(files) == 1
        upload_id = uuid4().hex[:12]
        stored = self._root / upload_id / "files"
        upload = Upload(
            id=upload_id,
            owner_id=self._actor.id,
            shown=first if is_single else f"{len(files)} files ({first} …)",
            source=str(stored / names[0] if is_single else stored),
            num_bytes=size,
            name=_free_name(first),
            split=name_of_file_split(Path(first)) if is_single else None,
        )
        write_bytes(folder / "upload.json", json.dumps(asdict(upload)).encode())
        with explain_write_errors(folder):
            folder.rename(self._root / upload_id)
        return upload

    def _new(self, *, shown: str, source: str, split: str | None) -> Upload:
        name = _free_name(shown.rpartition("/")[2].partition("@")[0])
        upload = Upload(uuid4().hex[:12], self._actor.id, shown, source, name=name, split=split)
        self._write(upload)
        return upload

    def _write(self, upload: Upload) -> None:
        write_bytes(self._root / upload.id / "upload.json", json.dumps(asdict(upload)).encode())


def _read(file: Path) -> Upload | None:
    try:
        return Upload(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _base_name(name: str) -> str:
    """The last part of a name, whatever system it is from."""
    return PureWindowsPath(PurePosixPath(name).name).name or "file"


def _stored_names(names: Sequence[str]) -> list[str]:
    """One file, or an archive, gets a name of ours. Of several each keeps its name where that is a plain one, since
    rows may name images by it; another one gets a number. A name is never taken for a path."""
    if len(names) == 1:
        suffix = _SUFFIX.search(_base_name(names[0]))
        return [f"data{suffix[0].lower() if suffix else ''}"]
    plain = [name if _PLAIN_NAME.fullmatch(name) else None for name in map(_only_name, names)]
    twice = sorted({name for name in plain if name is not None and plain.count(name) > 1})
    if twice:
        raise DataError(f"two of the files are named {twice[0]!r}; rename one, or upload a zip of their folders")
    return [name or f"file-{number:04d}" for number, name in enumerate(plain)]


def _only_name(name: str) -> str:
    """The name where it is no path; else nothing, which is no name."""
    return name if name == _base_name(name) else ""


def _free_name(shown: str) -> str:
    """A name for a data set made of that of a file."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", shown.partition(".")[0]).strip("-._")[:60]
    return stem if NAME_PATTERN.fullmatch(stem) else "my-data"
