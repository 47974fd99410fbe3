"""Config of how rows of a file are read, where that does not follow from the file itself."""

from __future__ import annotations

from typing import Literal

from mmrl.config.base import ConfigModel, PathText


class DataReadingConfig(ConfigModel):
    """Settings of reading a file, a folder or an archive as it is; a registered data set was read when it was added."""

    map: dict[str, str] = {}
    """Field to column, where a column is not recognised by its name, such as {answer: label, prompt: meta.question}; a
    column in double quotes is a text that every row gets. Fields: prompt, messages, images, answer, system, chosen,
    rejected, completion."""
    benchmark: Literal["mmmu", "mathvista", "geometry3k", "gsm8k"] | None = None
    """The public benchmark whose files these are, in the form in which its makers give them out."""
    images_first: bool = False
    """Put images before the first user turn of a text that holds no <image>; otherwise such a row is an error."""
    image_root: PathText | None = None
    """Folder that relative image paths start from; by default that of the data file."""
    allow_roots: tuple[PathText, ...] = ()
    """Folders that image paths may lead into besides."""
    allow_network: tuple[str, ...] = ()
    """Hosts that images may be fetched from, as name or name:port."""
