"""`mmrl dataset`: add, list, show, validate and export data sets."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmrl.cli.output import JsonOption, note, print_json, print_table
from mmrl.cli.reading import (
    AllowNetworkOption,
    AllowRootOption,
    ImageRootOption,
    ImagesFirstOption,
    MapOption,
    read_options,
)

if TYPE_CHECKING:
    from mmrl.data.registry import DatasetInfo
    from mmrl.data.rows import RowError
    from mmrl.types import Message, Sample

app = typer.Typer(no_args_is_help=True, help="Add, list, show, validate and export data sets.")

PathArgument = Annotated[
    str,
    typer.Argument(
        help="A file (jsonl, json, parquet, csv, tsv, arrow), a folder, a zip or tar archive, or hf://NAME."
    ),
]
SplitOption = Annotated[
    str | None, typer.Option(help="Name of a file's split (default: its stem, or train), or the one split of a folder.")
]
NUM_SHOWN = 20


@app.command()
def add(
    path: PathArgument,
    name: Annotated[str, typer.Option(help="Name to register it under.")],
    split: SplitOption = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out instead of refusing them.")] = False,
    mapping: MapOption = None,
    images_first: ImagesFirstOption = False,
    image_root: ImageRootOption = None,
    allow_root: AllowRootOption = None,
    allow_network: AllowNetworkOption = None,
    json: JsonOption = False,
) -> None:
    """Check every row and register the data set; bad rows are listed and refused."""
    from mmrl.data.ingest import add_dataset
    from mmrl.runs.inert import inert

    options = read_options(
        mapping, images_first=images_first, image_root=image_root, allow_root=allow_root, allow_network=allow_network
    )
    added = add_dataset(path, name=name, split=split, skip_bad=skip_bad, options=options)
    if json:
        print_json(
            _info(added.info)
            | {"skipped": [asdict(error) for error in added.skipped], "warnings": list(added.warnings)}
        )
        return
    for line in (*_error_lines("left out", added.skipped), *(f"warning: {line}" for line in added.warnings)):
        note(inert(line))
    typer.echo(f"{added.info.name} version {added.info.version}: {_splits(added.info)}")


@app.command("list")
def list_datasets(json: JsonOption = False) -> None:
    """Show the registered data sets."""
    from mmrl.data.registry import DatasetRegistry

    datasets = DatasetRegistry().all()
    if json:
        print_json({"datasets": [_info(info) for info in datasets]})
        return
    if not datasets:
        note("no data sets yet; `mmrl dataset add PATH --name NAME` adds one")
        return
    rows = [
        {"name": info.name, "version": info.version, "splits": _splits(info), "bytes": info.num_bytes}
        for info in datasets
    ]
    print_table(rows, list(rows[0]))


@app.command()
def show(
    ref: Annotated[str, typer.Argument(metavar="NAME[@SPLIT]", help="A registered data set, a file or a folder.")],
    rows: Annotated[str, typer.Option(help="Rows START:STOP, counted from 0, STOP left out.")] = "0:5",
    json: JsonOption = False,
) -> None:
    """Show samples as a run sees them."""
    from mmrl.data import load_dataset
    from mmrl.data.serialise import image_to_dict, sample_to_dict
    from mmrl.runs.inert import inert

    start, stop = _parse_rows(rows)
    dataset = load_dataset(ref, limit=stop)
    samples = dataset[start:stop]
    if json:
        shown = [sample_to_dict(each) | {"images": [image_to_dict(image) for image in each.images]} for each in samples]
        print_json({"name": dataset.name, "split": dataset.split, "version": dataset.version, "rows": shown})
        return
    typer.echo(f"{dataset.name} @{dataset.split} version {dataset.version}")
    for number, sample in enumerate(samples, start=start):
        typer.echo(inert(_sample_text(number, sample)))


@app.command()
def validate(
    path: PathArgument,
    split: SplitOption = None,
    mapping: MapOption = None,
    images_first: ImagesFirstOption = False,
    image_root: ImageRootOption = None,
    allow_root: AllowRootOption = None,
    allow_network: AllowNetworkOption = None,
    json: JsonOption = False,
) -> None:
    """Read every row and report the bad ones; registers and writes nothing. Exit code 1 if there are any."""
    from mmrl.data.ingest import validate as survey_of
    from mmrl.runs.inert import inert

    options = read_options(
        mapping, images_first=images_first, image_root=image_root, allow_root=allow_root, allow_network=allow_network
    )
    survey = survey_of(path, split=split, options=options)
    if json:
        errors = [asdict(error) for error in survey.errors]
        print_json(
            {"rows": survey.num_rows, "valid": survey.num_valid, "errors": errors, "warnings": survey.warnings()}
        )
    else:
        for line in (*_error_lines("bad", survey.errors), *(f"warning: {line}" for line in survey.warnings())):
            typer.echo(inert(line))
        typer.echo(f"{survey.num_valid} of {survey.num_rows} rows are valid")
    if survey.errors:
        raise typer.Exit(1)


@app.command()
def export(
    ref: Annotated[str, typer.Argument(metavar="NAME[@SPLIT]", help="A registered data set, or one split of it.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; must not exist yet.")],
    json: JsonOption = False,
) -> None:
    """Write a data set as jsonl files and images that `mmrl dataset add` reads back."""
    from mmrl.data.export import export_samples
    from mmrl.data.images import ImageStore
    from mmrl.data.registry import DatasetRegistry
    from mmrl.data.sources import pick_split

    name, _, split = ref.partition("@")
    registry = DatasetRegistry()
    info = registry.find(name)
    names = {each: each for each in info.splits}
    wanted: Sequence[str] = [pick_split(names, split, of=name)] if split else list(names)
    splits: dict[str, Iterable[Sample]] = {each: registry.read(info, each) for each in wanted}
    export_samples(splits, out, store=ImageStore())
    if json:
        print_json({"name": name, "version": info.version, "out": str(out), "splits": list(splits)})
    else:
        typer.echo(f"wrote {', '.join(splits)} of {name} to {out}")


def _parse_rows(text: str) -> tuple[int, int]:
    start, colon, stop = text.partition(":")
    if not (colon and start.isdecimal() and stop.isdecimal() and int(start) < int(stop)):
        raise typer.BadParameter(
            f"rows are START:STOP with START < STOP, such as 0:5 (got {text!r})", param_hint="--rows"
        )
    return int(start), int(stop)


def _info(info: DatasetInfo) -> dict[str, Any]:
    return info.model_dump(mode="json") | {"num_rows": info.num_rows, "num_bytes": info.num_bytes}


def _splits(info: DatasetInfo) -> str:
    return ", ".join(f"{name} {split.num_rows} rows" for name, split in info.splits.items())


def _error_lines(what: str, errors: Sequence[RowError]) -> list[str]:
    lines = [f"{what}: {error}" for error in errors[:NUM_SHOWN]]
    return lines + ([f"{what}: … and {len(errors) - NUM_SHOWN} more"] if len(errors) > NUM_SHOWN else [])


def _sample_text(number: int, sample: Sample) -> str:
    lines = [f"\nrow {number}  {sample.id}"]
    lines += [f"  {message.role}: {_message_text(message)}" for message in sample.messages]
    lines += [f"  answer: {sample.answer}" if sample.answer is not None else "  no answer"]
    return "\n".join([*lines, f"  meta: {json_module.dumps(dict(sample.meta), ensure_ascii=False)}"])


def _message_text(message: Message) -> str:
    from mmrl.types import ImagePart

    return "".join(
        f"[image {part.image.width}x{part.image.height} {part.image.sha256[:12]}]"
        if isinstance(part, ImagePart)
        else part.text
        for part in message.content
    )
