"""Images on their way into a conversation: looked at by the server, whatever the browser says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

from mmrl.data.formats.content import HEAD_BYTES, refuse_pickle, refuse_pickle_name
from mmrl.data.images import ImageStore
from mmrl.errors import DataError
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.settings import JobsSettings
from mmrl.types import ImageRef

MAX_IMAGES = 8
MAX_IMAGE_MB = 20
TYPES = ("png", "jpg", "jpeg", "webp", "gif", "bmp")


def store_images(files: Sequence[tuple[str, IO[bytes]]], actor: User, settings: JobsSettings) -> tuple[ImageRef, ...]:
    """files: (name as the browser tells it, content). All are checked before any is stored.

    Raises DataError for one that is damaged, too large or no image, and for too many; ForbiddenError.
    """
    check_allowed(actor, "submit", settings=settings)
    if len(files) > MAX_IMAGES:
        raise DataError(f"a question takes at most {MAX_IMAGES} images (got {len(files)})")
    contents = [_content(name, file) for name, file in files]
    store = ImageStore()
    found = []
    for (name, _), content in zip(files, contents, strict=True):
        try:
            found.append(store.add(content))
        except DataError as error:
            raise DataError(f"{Path(name).name}: {error}") from error
    return tuple(found)


def _content(name: str, file: IO[bytes]) -> bytes:
    refuse_pickle_name(Path(name))
    file.seek(0)
    content = file.read(MAX_IMAGE_MB * 1_000_000 + 1)
    if len(content) > MAX_IMAGE_MB * 1_000_000:
        raise DataError(f"{Path(name).name} is larger than {MAX_IMAGE_MB} MB; make it smaller")
    refuse_pickle(content[:HEAD_BYTES], Path(name))
    return content
