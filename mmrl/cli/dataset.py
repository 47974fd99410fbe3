"""`mmrl dataset`: add, list, show, validate and export data sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmrl.cli.dataset_split import split
from mmrl.cli.dataset_text import (
    distribution_line,
    error_lines,
    info_to_json,
    sample_text,
    sample_to_json,
    splits_text,
)
from mmrl.cli.output import JsonOption, note, print_json, print_table
from mmrl.cli.reading import (
    AllowNetworkOption,
    AllowRootOption,
    BenchmarkOption,
    ImageRootOption,
    ImagesFirstOption,
    MapOption,
    parse_rows,
    read_options,
)

if TYPE_CHECKING:
    from mmrl.data.survey import Survey
    from mmrl.trainer.data_checks import RunChecks
    from mmrl.trainer.preview import Previewer
    from mmrl.types import Sample

app = typer.Typer(no_args_is_help=True, help="Add, list, show, validate, split and export data sets.")
app.command()(split)

PathArgument = Annotated[
    str,
    typer.Argument(
        help="A file (jsonl, json, parquet, csv, tsv, arrow), a folder, a zip or tar archive, here or at s3://; or "
        "hf://NAME."
    ),
]
SplitOption = Annotated[
    str | None, typer.Option(help="Name of a file's split (default: its stem, or train), or the one split of a folder.")
]
RunOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="RUN.yaml", show_default=False, help="A run's config, to check against it."),
]


@app.command()
def add(
    path: PathArgument,
    name: Annotated[str, typer.Option(help="Name to register it under.")],
    split: SplitOption = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out instead of refusing them.")] = False,
    mapping: MapOption = None,
    benchmark: BenchmarkOption = None,
    images_first: ImagesFirstOption = False,
    image_root: ImageRootOption = None,
    allow_root: AllowRootOption = None,
    allow_network: AllowNetworkOption = None,
    source: Annotated[
        str | None, typer.Option(metavar="TEXT", show_default=False, help="Where it comes from, if not PATH.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check every row and register the data set; bad rows are listed and refused."""
    from mmrl.data.ingest import add_dataset
    from mmrl.runs.inert import inert

    options = read_options(
        mapping,
        benchmark=benchmark,
        images_first=images_first,
        image_root=image_root,
        allow_root=allow_root,
        allow_network=allow_network,
    )
    added = add_dataset(path, name=name, split=split, skip_bad=skip_bad, options=options, source=source)
    if json:
        print_json(
            info_to_json(added.info)
            | {"skipped": [asdict(error) for error in added.skipped], "warnings": list(added.warnings)}
        )
        return
    for line in (*error_lines("left out", added.skipped), *(f"warning: {line}" for line in added.warnings)):
        note(inert(line))
    typer.echo(f"{added.info.name} version {added.info.version}: {splits_text(added.info)}")


@app.command("list")
def list_datasets(json: JsonOption = False) -> None:
    """Show the registered data sets."""
    from mmrl.data.registry import DatasetRegistry

    datasets = DatasetRegistry().all()
    if json:
        print_json({"datasets": [info_to_json(info) for info in datasets]})
        return
    if not datasets:
        note("no data sets yet; `mmrl dataset add PATH --name NAME` adds one")
        return
    rows = [
        {"name": info.name, "version": info.version, "splits": splits_text(info), "bytes": info.num_bytes}
        for info in datasets
    ]
    print_table(rows, list(rows[0]))


@app.command()
def show(
    ref: Annotated[str, typer.Argument(metavar="NAME[@SPLIT]", help="A registered data set, a file or a folder.")],
    rows: Annotated[str, typer.Option(help="Rows START:STOP, counted from 0, STOP left out.")] = "0:5",
    mapping: MapOption = None,
    benchmark: BenchmarkOption = None,
    images_first: ImagesFirstOption = False,
    image_root: ImageRootOption = None,
    allow_root: AllowRootOption = None,
    allow_network: AllowNetworkOption = None,
    config: RunOption = None,
    model: Annotated[
        str | None, typer.Option(metavar="PATH", show_default=False, help="A model, to show sizes and tokens for.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show samples as a run sees them; with a config or a model, also image sizes and token counts as it makes them.

    How rows are read (--map and so on) counts for a file or folder; a registered data set was read when it was added.
    """
    from mmrl.data import load_dataset
    from mmrl.data.options import PLAIN
    from mmrl.data.registry import DatasetRegistry
    from mmrl.errors import DataError, NotFoundError
    from mmrl.runs.inert import inert

    start, stop = parse_rows(rows)
    options = read_options(
        mapping,
        benchmark=benchmark,
        images_first=images_first,
        image_root=image_root,
        allow_root=allow_root,
        allow_network=allow_network,
    )
    dataset = load_dataset(ref, limit=stop, options=options)
    if options != PLAIN and DatasetRegistry().has(dataset.name):
        raise DataError(
            f"{dataset.name} is registered, and its rows were read when it was added: --map and the like change "
            f"nothing now; show the file that it came from, or write ./{dataset.name} for a file of that name"
        )
    samples = dataset[start:stop]
    if not samples:
        raise NotFoundError(
            f"{dataset.name} @{dataset.split} has {len(dataset)} row(s), the last is row {len(dataset) - 1}; "
            f"none is in {rows}"
        )
    previewer = _previewer(config, model)
    previews = [None if previewer is None else previewer(sample) for sample in samples]
    if json:
        shown = [sample_to_json(sample, preview) for sample, preview in zip(samples, previews, strict=True)]
        print_json({"name": dataset.name, "split": dataset.split, "version": dataset.version, "rows": shown})
        return
    typer.echo(f"{dataset.name} @{dataset.split} version {dataset.version}")
    for number, (sample, preview) in enumerate(zip(samples, previews, strict=True), start=start):
        typer.echo(inert(sample_text(number, sample, preview)))


@app.command()
def validate(
    path: PathArgument,
    split: SplitOption = None,
    mapping: MapOption = None,
    benchmark: BenchmarkOption = None,
    images_first: ImagesFirstOption = False,
    image_root: ImageRootOption = None,
    allow_root: AllowRootOption = None,
    allow_network: AllowNetworkOption = None,
    config: RunOption = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Tell how lengths, images and answers are distributed.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Read every row and report the bad ones; registers and writes nothing. Exit code 1 if there are any.

    With a run's config, prompts are counted in tokens and answers are tried on the rewards that will grade them.
    """
    from mmrl.data.ingest import validate as survey_of

    options = read_options(
        mapping,
        benchmark=benchmark,
        images_first=images_first,
        image_root=image_root,
        allow_root=allow_root,
        allow_network=allow_network,
    )
    with nullcontext() if config is None else _checks_of(config) as checks:
        survey = survey_of(
            path, split=split, options=options, checks=checks.all if checks is not None else (), statistics=stats
        )
    if json:
        print_json(_report(survey, checks))
    else:
        _tell(survey, checks)
    if survey.faults:
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


def _checks_of(config: Path) -> AbstractContextManager[RunChecks]:
    from mmrl.config import load_config
    from mmrl.trainer.data_checks import checks_of

    return checks_of(load_config(config).run_config)


def _previewer(config: Path | None, model: str | None) -> Previewer | None:
    if config is None and model is None:
        return None
    if config is not None and model is not None:
        raise typer.BadParameter("--config names a model already; give one of --config and --model")
    from mmrl.config import load_config
    from mmrl.data import ImageStore
    from mmrl.trainer.preview import Previewer

    if config is not None:
        return Previewer.of_run(load_config(config).run_config, ImageStore())
    return Previewer.of_model(str(model), ImageStore())


def _report(survey: Survey, checks: RunChecks | None) -> dict[str, Any]:
    report: dict[str, Any] = {
        "rows": survey.num_rows,
        "valid": survey.num_valid,
        "columns": survey.columns,
        "errors": [asdict(error) for error in survey.faults],
        "warnings": survey.warnings(),
    }
    if survey.statistics is not None:
        report["stats"] = survey.statistics.to_json()
    if checks is not None:
        report["tokens"] = checks.tokens.to_json()
        if checks.rewards is not None:
            report["rewards"] = checks.rewards.to_json()
    return report


def _tell(survey: Survey, checks: RunChecks | None) -> None:
    from mmrl.data.statistics import statistics_lines
    from mmrl.runs.inert import inert

    lines = [*error_lines("bad", survey.faults), *(f"warning: {line}" for line in survey.warnings())]
    if survey.statistics is not None:
        lines += statistics_lines(survey.statistics.to_json())
    if checks is not None:
        lines.append(distribution_line("prompt tokens", checks.tokens.to_json()["prompt_tokens"]))
    for line in [*lines, f"{survey.num_valid} of {survey.num_rows} rows are valid"]:
        typer.echo(inert(line))
