"""A run directory in an object store: the trainer writes a folder on its own disk, a mirror brings it there.

`mmrl train --run-dir s3://bucket/runs/digits` trains in a folder under MMRL_HOME/mirrors. What is finished goes to the
address as it comes: samples, images and checkpoints as the files that they are, the manifest of a checkpoint last;
files that grow (events, metrics, logs) as numbered parts. Another machine that trains at the same address first takes
from there what it lacks, so that the run goes on where it was.

Addresses are fsspec's (s3://, gs://, file:// …); keys and endpoints come from the environment, as the store's own
library reads them.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from mmrl.config.base import home
from mmrl.config.secrets import redact
from mmrl.errors import ConfigError, ConflictError, DataError, MmrlError, RunFailedError
from mmrl.runs import layout
from mmrl.runs.mirror_store import Store

Say = Callable[[str], None]

MIRROR_EVERY_S = 10.0
"""For runs whose config does not say."""

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_GROWING = re.compile(r"attempt-\d+/(.*/)?[^/]+\.(jsonl|log|out|err)")
_WRITTEN_ONCE = re.compile(r"attempt-\d+/samples/[^/]+\.parquet|images/[0-9a-f]{2}/[0-9a-f]{64}\.(png|jpg)")
_RECORDS = re.compile(rf"attempt-\d+/({layout.EVENTS_FILE}|{layout.METRICS_FILE})")
_OF_ATTEMPT = re.compile(r"attempt-(\d+)/")
_CHECKPOINT_FILE = re.compile(r"checkpoints/(step-\d{6,})/.+")
_MIRRORED = re.compile(r".*/mirrors/([^/]+-[0-9a-f]{12}(/.*)?)")
_LAST_TRIES = 3


def is_address(run_dir: Path | str) -> bool:
    """Whether a run directory is given as the address of a store."""
    return isinstance(run_dir, str) and bool(_ADDRESS.match(run_dir))


def local_folder(run_dir: Path | str) -> Path:
    """Where the run is written on this machine: a folder as it is; for an address one that follows from it alone."""
    if not is_address(run_dir):
        return Path(run_dir)
    address = str(run_dir).rstrip("/")
    digest = hashlib.sha256(address.encode()).hexdigest()[:12]
    return home() / "mirrors" / f"{layout.folder_name(PurePosixPath(address).name)}-{digest}"


def mirrored_name(path: str) -> str | None:
    """What a path within the local folder of a run in a store is called on every machine; None for another path."""
    match = _MIRRORED.fullmatch(path)
    return match[1] if match else None


def local_checkpoint(where: Path | str) -> Path:
    """The folder of a checkpoint on this machine: a folder as it is; `<address of a run>/checkpoints/step-000040` is
    taken from the store, unless it lies whole in the run's local folder.

    Raises ConfigError for another address, RunFailedError if the store does not answer.
    """
    if not is_address(where):
        return Path(where)
    address, _, step = str(where).rstrip("/").rpartition("/checkpoints/")
    if not address or layout.parse_checkpoint_name(step) is None:
        raise ConfigError(f"{redact(str(where))} is no checkpoint; give ADDRESS-OF-A-RUN/checkpoints/step-000040")
    mirror = Mirror(local_folder(address), address)
    mirror.pull_checkpoint(step)
    return layout.checkpoints_dir(mirror.folder) / step


@contextmanager
def mirrored(run_dir: Path | str, *, every_s: float, say: Say) -> Iterator[Path]:
    """The local folder of a run; for an address it is brought up to date first, and mirrored until the end.

    every_s: seconds between two looks for what is finished. say: is told when the store does not answer.
    Raises ConfigError for an address that cannot be opened, RunFailedError where the last parts cannot be brought over.
    """
    folder = local_folder(run_dir)
    if not is_address(run_dir):
        yield folder
        return
    mirror = Mirror(folder, str(run_dir))
    mirror.pull()
    stop = threading.Event()
    thread = threading.Thread(target=_push_until, args=(mirror, stop, every_s, say), name="mmrl-mirror", daemon=True)
    thread.start()
    try:
        yield folder
    except BaseException:
        _join(thread, stop)
        try:
            mirror.finish()
        except MmrlError as error:
            say(str(error))  # the run's own failure is the one to raise
        raise
    _join(thread, stop)
    mirror.finish()


class Mirror:
    """A local run directory and its copy in a store. One thread at a time uses it."""

    def __init__(self, folder: Path, address: str) -> None:
        if _PASSWORD.search(address):
            raise ConfigError(f"run directory {redact(address)} holds a password; give it by the environment instead")
        self.folder = folder
        self.address = address
        self._store: Store | None = None
        self._owner: bytes | None = None
        self._whole: set[str] = set()

    @property
    def store(self) -> Store:
        """Lists what is there when it is first asked for, and again after `forget`."""
        if self._store is None:
            self._store = Store(self.address)
        return self._store

    def pull(self) -> None:
        """Takes from the store what the local folder lacks. A checkpoint without its manifest is left there.

        Raises RunFailedError if the store does not answer.
        """
        try:
            self._pull()
        except OSError as error:
            raise RunFailedError(f"{redact(self.address)} cannot be read: {_reason(error)}") from error

    def pull_records(self) -> None:
        """What readers of the run look at: configs, events, metrics, samples and their images. No owner, since the run
        may be going on here, no checkpoints and no logs. Raises RunFailedError if the store does not answer."""
        try:
            self._pull_config()
            self._pull_named(lambda name: bool(_WRITTEN_ONCE.fullmatch(name)))
            self._pull_growth(lambda name: bool(_RECORDS.fullmatch(name)))
        except OSError as error:
            raise RunFailedError(f"{redact(self.address)} cannot be read: {_reason(error)}") from error

    def pull_checkpoint(self, step: str) -> None:
        """One checkpoint and nothing else, if the store has it whole. step: the name of its folder."""
        try:
            self._pull_checkpoint(step)
        except OSError as error:
            raise RunFailedError(f"{redact(self.address)} cannot be read: {_reason(error)}") from error

    def push(self) -> None:
        """Brings over what is finished here and not there yet. Raises OSError if the store does not answer, and
        ConflictError once an attempt elsewhere owns the run."""
        self._push_settings()
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            name = path.relative_to(self.folder).as_posix()
            if _GROWING.fullmatch(name):
                self._push_growth(name, path)
            elif _WRITTEN_ONCE.fullmatch(name) and name not in self.store.sizes:
                self.store.put(name, path)
        self._push_checkpoints()

    def finish(self) -> None:
        """The last push, tried a few times. Raises RunFailedError that says where the run lies."""
        for tries in range(1, _LAST_TRIES + 1):
            try:
                return self.push()
            except OSError as error:
                self.forget()
                if tries == _LAST_TRIES:
                    raise RunFailedError(
                        f"{redact(self.address)} cannot be written: {_reason(error)}; the run lies whole in "
                        f"{self.folder}, and the same command brings it over"
                    ) from error
        return None

    def forget(self) -> None:
        """A push failed half-way: what is there is listed anew at the next one."""
        self._store = None

    def _pull(self) -> None:
        self._pull_named(lambda name: True)
        for step in sorted(_steps(self.store.sizes)):
            self._pull_checkpoint(step)
        self._pull_growth(lambda name: True)

    def _pull_named(self, is_wanted: Callable[[str], bool]) -> None:
        for name in sorted(filter(is_wanted, self.store.sizes)):
            if self._is_lacking(name):
                self.store.fetch(name, self.folder / name)

    def _pull_growth(self, is_wanted: Callable[[str], bool]) -> None:
        for name, size in self.store.grown().items():
            path = self.folder / name
            is_behind = not path.is_file() or path.stat().st_size < size
            if is_wanted(name) and _GROWING.fullmatch(name) and is_behind:
                self.store.join(name, path)

    def _pull_config(self) -> None:
        """For a reader: where an attempt goes on here, its own are the newer ones."""
        there = max((int(match[1]) for name in self.store.sizes if (match := _OF_ATTEMPT.match(name))), default=0)
        if there > max(layout.attempts(self.folder), default=0) or not (self.folder / layout.CONFIG_FILE).is_file():
            self._pull_named(lambda name: name.endswith(layout.CONFIG_FILE))

    def _is_lacking(self, name: str) -> bool:
        """Known files of a run directory only: names in a store are not trusted as paths."""
        known = name in (layout.CONFIG_FILE, layout.OWNER_FILE) or bool(
            re.fullmatch(rf"attempt-\d+/{layout.CONFIG_FILE}", name) or _WRITTEN_ONCE.fullmatch(name)
        )
        path = self.folder / name
        return known and (not path.is_file() or path.stat().st_size != self.store.sizes[name])

    def _pull_checkpoint(self, step: str) -> None:
        """A whole one that is not here, or is another here; the manifest last here too."""
        folder = layout.checkpoints_dir(self.folder) / step
        manifest = folder / layout.MANIFEST_FILE
        content = self.store.read(_manifest(step))
        if content is None or (manifest.is_file() and manifest.read_bytes() == content):
            return
        manifest.unlink(missing_ok=True)
        for file in sorted(json.loads(content)["files"]):
            if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
                raise DataError(f"{redact(self.address)}: the manifest of {step} names {file!r}, outside its folder")
            self.store.fetch(f"checkpoints/{step}/{file}", folder / file)
        self.store.fetch(_manifest(step), manifest)

    def _push_settings(self) -> None:
        """Owner and configs, which are replaced as a whole; the owner first, so that older attempts see it."""
        owner = self.folder / layout.OWNER_FILE
        content = owner.read_bytes() if owner.is_file() else None
        if content != self._owner and content is not None:
            self.store.put(layout.OWNER_FILE, owner)
            self._owner = content
        for path in (self.folder / layout.CONFIG_FILE, *self.folder.glob(f"attempt-*/{layout.CONFIG_FILE}")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and self.store.sizes.get(name) != path.stat().st_size:
                self.store.put(name, path)

    def _push_growth(self, name: str, path: Path) -> None:
        """Whole lines only: the last one may be half written."""
        start = self.store.grown().get(name, 0)
        if path.stat().st_size <= start:
            return
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
        lines = data[: data.rfind(b"\n") + 1]
        if lines:
            self.store.append(name, lines, start=start)

    def _push_checkpoints(self) -> None:
        folders = {
            folder.name: folder
            for folder in layout.checkpoints_dir(self.folder).glob("step-*")
            if layout.parse_checkpoint_name(folder.name) is not None and (folder / layout.MANIFEST_FILE).is_file()
        }
        for step, folder in sorted(folders.items()):
            if step not in self._whole:
                self._push_checkpoint(step, folder)
        for step in sorted(_steps(self.store.sizes) - folders.keys()):
            self._remove_checkpoint(step)

    def _push_checkpoint(self, step: str, folder: Path) -> None:
        """Files first and the manifest last, so that readers there never see half of one."""
        manifest = folder / layout.MANIFEST_FILE
        name = _manifest(step)
        try:
            content = manifest.read_bytes()
            if name not in self.store.sizes or self.store.read(name) != content:
                self._require_ownership()
                if name in self.store.sizes:
                    self.store.remove(name)
                for file in sorted(json.loads(content)["files"]):
                    self.store.put(f"checkpoints/{step}/{file}", folder / file)
                self.store.put(name, manifest)
        except FileNotFoundError:
            return  # pruned meanwhile; the next push removes what came over of it
        self._whole.add(step)

    def _remove_checkpoint(self, step: str) -> None:
        """One that is no more kept here. Its manifest goes first, so that it is never half there."""
        self._require_ownership()
        names = [name for name in self.store.sizes if name.startswith(f"checkpoints/{step}/")]
        for name in sorted(names, key=lambda name: not name.endswith(f"/{layout.MANIFEST_FILE}")):
            self.store.remove(name)
        self._whole.discard(step)

    def _require_ownership(self) -> None:
        there = self.store.read(layout.OWNER_FILE)
        if there is not None and there != self._owner:
            raise ConflictError(
                f"{redact(self.address)} belongs to another attempt now; this one brings nothing more over, and what "
                f"it wrote stays in {self.folder}"
            )


def _manifest(step: str) -> str:
    return f"checkpoints/{step}/{layout.MANIFEST_FILE}"


def _steps(names: Iterable[str]) -> set[str]:
    """The folders of checkpoints of which something is there."""
    return {match[1] for name in names if (match := _CHECKPOINT_FILE.fullmatch(name))}


def _join(thread: threading.Thread, stop: threading.Event) -> None:
    stop.set()
    thread.join()


def _push_until(mirror: Mirror, stop: threading.Event, every_s: float, say: Say) -> None:
    is_told = False
    while not stop.wait(every_s):
        try:
            mirror.push()
            is_told = False
        except OSError as error:
            mirror.forget()
            if not is_told:
                say(
                    f"{redact(mirror.address)} does not answer ({_reason(error)}); the run goes on and is brought later"
                )
            is_told = True
        except ConflictError as error:
            say(str(error))
            return


def _reason(error: OSError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
