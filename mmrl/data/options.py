"""How the rows of a source are to be read, where that does not follow from the files themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from mmrl.config.data_reading import DataReadingConfig
from mmrl.data.benchmarks import Benchmark
from mmrl.errors import DataError

MAPPED_FIELDS = ("prompt", "messages", "images", "answer", "system", "chosen", "rejected", "completion")
MAX_DOWNLOAD_BYTES = 64 * 2**20

_HOST = re.compile(r"[A-Za-z0-9.-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")


@dataclass(frozen=True)
class ReadOptions:
    """What a user says about the rows of a source.

    mapping: (field, column) pairs that go before what is recognised. A column may be a dotted path into an object
        (`reward_model.ground_truth`), or a text in double quotes that every row gets.
    images_first: images of a row whose text holds no <image> at all go before its first user turn.
    image_root: where relative image paths start, instead of the folder of the data file.
    roots: folders that image paths may lead into besides. hosts: `name` or `name:port` that images may be fetched from.
    timeout_s: for one image from a host, all redirects together. max_bytes: of one such image.
    benchmark: the public benchmark whose files these are.
    """

    mapping: tuple[tuple[str, str], ...] = ()
    images_first: bool = False
    image_root: Path | None = None
    roots: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()
    timeout_s: float = 20.0
    max_bytes: int = MAX_DOWNLOAD_BYTES
    benchmark: Benchmark | None = None

    def __post_init__(self) -> None:
        for field, column in self.mapping:
            if field not in MAPPED_FIELDS:
                near = get_close_matches(field, MAPPED_FIELDS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise DataError(
                    f"map {field}={column}: no field {field!r}; fields are {', '.join(MAPPED_FIELDS)}{hint}"
                )
            if not column:
                raise DataError(f"map {field}=: names no column; write it as {field}=COLUMN")
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise DataError(f"not a host: {host!r}; give a name or address alone, such as images.example.org:8080")
        for folder in (*self.roots, *([self.image_root] if self.image_root else [])):
            if not folder.is_dir():
                raise DataError(f"the folder {folder} does not exist; images can be read from existing folders only")


def options_of(config: DataReadingConfig) -> ReadOptions:
    """What a run's config says."""
    return ReadOptions(
        mapping=tuple(config.map.items()),
        images_first=config.images_first,
        image_root=Path(config.image_root) if config.image_root is not None else None,
        roots=tuple(Path(folder) for folder in config.allow_roots),
        hosts=config.allow_network,
        benchmark=config.benchmark,
    )


PLAIN = ReadOptions()
"""Nothing said: what is recognised by itself, and images from the data set's own folder only."""


def parse_mapping(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`field=column` texts as pairs. Raises DataError without '=', and for a field that is given twice."""
    pairs: dict[str, str] = {}
    for text in texts:
        field, equals, column = text.partition("=")
        field = field.strip()
        if not equals:
            raise DataError(f"map {text!r} has no '='; write it as FIELD=COLUMN, such as answer=label")
        if field in pairs:
            raise DataError(f"map {field} is given twice ({pairs[field]} and {column}); keep one of them")
        pairs[field] = column.strip()
    return tuple(pairs.items())
