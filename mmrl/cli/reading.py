"""The options that say how rows are read, shared by the commands that read files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mmrl.data.benchmarks import Benchmark
    from mmrl.data.options import ReadOptions

MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        show_default=False,
        help='Take FIELD (prompt, images, answer, …) from COLUMN, such as answer=meta.label, or prompt="one text".',
    ),
]
ImagesFirstOption = Annotated[
    bool, typer.Option("--images-first", help="Put images before a text that holds no <image>, instead of refusing it.")
]
ImageRootOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", show_default=False, help="Where relative image paths start, if not beside the data."),
]
AllowRootOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", show_default=False, help="A folder that image paths may lead into besides."),
]
AllowNetworkOption = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", show_default=False, help="A host that images may be fetched from, or HOST:PORT."),
]


BenchmarkOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", show_default=False, help="Files of a public benchmark: mmmu, mathvista, geometry3k, gsm8k."
    ),
]


def read_options(
    mapping: list[str] | None,
    *,
    benchmark: str | None = None,
    images_first: bool,
    image_root: Path | None,
    allow_root: list[Path] | None,
    allow_network: list[str] | None,
) -> ReadOptions:
    """What the options say. Raises DataError for a mapping, a folder or a host that cannot be meant."""
    from mmrl.data.options import ReadOptions, parse_mapping

    return ReadOptions(
        mapping=parse_mapping(mapping or ()),
        images_first=images_first,
        image_root=image_root,
        roots=tuple(allow_root or ()),
        hosts=tuple(allow_network or ()),
        benchmark=_benchmark(benchmark),
    )


def _benchmark(name: str | None) -> Benchmark | None:
    from mmrl.data.benchmarks import BENCHMARKS

    if name is not None and name not in BENCHMARKS:
        raise typer.BadParameter(f"got {name!r}; allowed: {', '.join(BENCHMARKS)}", param_hint="--benchmark")
    return name


def parse_rows(text: str) -> tuple[int, int]:
    """START:STOP as numbers."""
    start, colon, stop = text.partition(":")
    if not (colon and start.isdecimal() and stop.isdecimal() and int(start) < int(stop)):
        raise typer.BadParameter(
            f"rows are START:STOP with START < STOP, such as 0:5 (got {text!r})", param_hint="--rows"
        )
    return int(start), int(stop)
