"""Panels: frozen prompts with the settings and the seed that they are answered by, so that answers can be compared.

MMRL_HOME/panels/<name>/
    panel.json        name, settings, where the prompts came from, and a hash of prompts and settings
    prompts.parquet   the prompts, as a registered data set keeps them
    images/           their images, by SHA-256
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmrl.config.base import home
from mmrl.config.evaluation import AnswerConfig
from mmrl.data.dataset import content_hash
from mmrl.data.files import locked, write_bytes
from mmrl.data.images import ImageStore
from mmrl.data.serialise import canonical
from mmrl.data.storage import read_split, write_split
from mmrl.errors import ConflictError, DataError, NotFoundError
from mmrl.runs.disk import write_whole
from mmrl.runs.images import find_image, keep_image
from mmrl.types import Sample

PANEL_FILE = "panel.json"
PROMPTS_FILE = "prompts.parquet"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class PanelSettings:
    """How the prompts are answered; see `config.evaluation.AnswerConfig` and `config.rollout`.

    min_pixels, max_pixels: limits of image size, which decide what of an image the model sees.
    """

    max_response_tokens: int
    samples_per_prompt: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    greedy: bool = False
    ks: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    seed: int = 0
    min_pixels: int = 3136
    max_pixels: int = 1003520

    @classmethod
    def of(cls, answers: AnswerConfig, **others: Any) -> PanelSettings:
        """others: what an `AnswerConfig` does not say."""
        return cls(
            samples_per_prompt=answers.samples_per_prompt,
            temperature=answers.temperature,
            top_p=answers.top_p,
            top_k=answers.top_k,
            greedy=answers.greedy,
            ks=answers.ks,
            **others,
        )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> PanelSettings:
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**settings)


@dataclass(frozen=True)
class Panel:
    """samples: in order; one that comes again gets further responses. data: what the prompts were read from."""

    name: str
    settings: PanelSettings
    samples: tuple[Sample, ...] = field(repr=False)
    data: str = ""

    @property
    def hash(self) -> str:
        """SHA-256, first 16 digits, of prompts and settings: equal ones are the same panel, whatever their names."""
        text = canonical({"prompts": content_hash(self.samples), "settings": asdict(self.settings)})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def save_panel(panel: Panel, store: ImageStore, *, root: Path | None = None) -> Path:
    """Freezes a panel under its name. The same one again changes nothing, also where several do so at once: the first
    of them writes it, the others wait and find it.

    store: where its images lie. Raises ConflictError where another panel has the name, DataError for a name that is
    none.
    """
    folder = _folder(panel.name, root)
    if not _is_kept(panel, folder, root):
        with locked(folder.parent):
            if not _is_kept(panel, folder, root):
                _write(panel, folder, store)
    return folder


def _is_kept(panel: Panel, folder: Path, root: Path | None) -> bool:
    """Raises ConflictError where another one is."""
    if not (folder / PANEL_FILE).is_file():
        return False
    kept = read_panel(panel.name, root=root)
    if kept.hash != panel.hash:
        raise ConflictError(
            f"panel {panel.name!r} exists with other prompts or settings (hash {kept.hash}, this is {panel.hash}); "
            "a panel never changes: choose another name"
        )
    return True


def _write(panel: Panel, folder: Path, store: ImageStore) -> None:
    """What a writer that was killed has left is thrown away; `panel.json` comes last."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for image in {image.sha256: image for sample in panel.samples for image in sample.images}.values():
        keep_image(folder, image.sha256, store.path(image))
    write_split(folder / PROMPTS_FILE, panel.samples)
    described = {
        "schema_version": 1,
        "name": panel.name,
        "hash": panel.hash,
        "data": panel.data,
        "num_prompts": len(panel.samples),
        "settings": asdict(panel.settings),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_whole(folder / PANEL_FILE, json.dumps(described, indent=1).encode())


def read_panel(name: str, *, root: Path | None = None, store: ImageStore | None = None) -> Panel:
    """The panel of a name. With `store`, its images are put there where they are missing.

    Raises NotFoundError that names those there are, DataError for one that is damaged or was changed.
    """
    folder = _folder(name, root)
    try:
        described = json.loads((folder / PANEL_FILE).read_bytes())
        samples = tuple(read_split(folder / PROMPTS_FILE))
        settings = PanelSettings.from_json(described["settings"])
        panel = Panel(described["name"], settings, samples, described["data"])
    except FileNotFoundError:
        names = ", ".join(panel_names(root=root)) or "none"
        raise NotFoundError(f"no panel {name!r} in {folder.parent}; there are: {names}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder / PANEL_FILE} is damaged ({error}); make the panel again under another name"
        ) from error
    if panel.hash != described["hash"]:
        raise DataError(
            f"panel {name!r} was changed: its hash is {panel.hash} and was {described['hash']}; make it anew"
        )
    if store is not None:
        _restore_images(folder, panel.samples, store)
    return panel


def panel_names(*, root: Path | None = None) -> list[str]:
    """The names of the panels that were saved, sorted."""
    base = _root(root)
    return sorted(path.parent.name for path in base.glob(f"*/{PANEL_FILE}"))


def panel_image(name: str, sha256: str, *, root: Path | None = None) -> Path | None:
    """Where an image of a panel's prompts lies; None if it is not there."""
    return find_image(_folder(name, root), sha256)


def panel_of(samples: Sequence[Sample], settings: PanelSettings, *, name: str | None = None, data: str = "") -> Panel:
    """A panel of these prompts; without a name its hash is its name. Raises DataError for no prompts at all."""
    if not samples:
        raise DataError("a panel needs at least one prompt; the data has none")
    panel = Panel(name or "", settings, tuple(samples), data)
    return panel if name else Panel(panel.hash, settings, panel.samples, data)


def _restore_images(folder: Path, samples: Sequence[Sample], store: ImageStore) -> None:
    for image in {image.sha256: image for sample in samples for image in sample.images}.values():
        if store.path(image).is_file():
            continue
        kept = find_image(folder, image.sha256)
        if kept is None:
            raise DataError(f"{folder}: image {image.sha256} is missing, so the panel cannot be answered; make it anew")
        keep_in_store(store, kept, image.sha256)


def keep_in_store(store: ImageStore, source: Path, sha256: str) -> None:
    """Puts an image that was kept elsewhere back into the store. Raises DataError where it is another one now."""
    data = source.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"{source} is not the image that it was named after; make the panel again from its data")
    write_bytes(str(store.path(sha256)), data)


def _folder(name: str, root: Path | None) -> Path:
    if not _NAME.fullmatch(name):
        raise DataError(f"not a name for a panel: {name!r}; use up to 100 letters, digits, '.', '_' and '-'")
    return _root(root) / name


def _root(root: Path | None) -> Path:
    return home() / "panels" if root is None else root
