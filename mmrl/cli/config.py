"""`mmrl config`: a config's values with their origins, what differs between two, and the schema of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmrl.cli.arguments import OverridesArgument
from mmrl.cli.output import JsonOption, cell_text, fold, note, print_json, print_table, terminal_width, text_width

if TYPE_CHECKING:
    from mmrl.config.loading import Leaf, LoadedConfig

FileOrJobArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG", show_default=False, help="A YAML file, a run directory or its address in a store, or a job."
    ),
]
FileOrRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG", show_default=False, help="A YAML file, or a run directory or its address in a store."
    ),
]

app = typer.Typer(no_args_is_help=True, help="Show, compare and describe configs.")


@app.command()
def show(config: FileOrRunArgument, overrides: OverridesArgument = None, json: JsonOption = False) -> None:
    """Print each value of a config and who set it.

    That is the default, a line of the file, or an override.
    """
    from mmrl.config import load_config
    from mmrl.runs.mirror import is_address

    words = overrides or ()
    loaded = _stored_config(config, words) if is_address(config) else load_config(config, words)
    if json:
        print_json({"config": loaded.source, "values": [_leaf_json(leaf) for leaf in loaded.leaves]})
    else:
        print("\n".join(show_lines(loaded.leaves, terminal_width())))


@app.command()
def schema(
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="A kind of run, such as noop; rl is that of training.")
    ] = "rl",
) -> None:
    """Print the JSON Schema of configs of a kind."""
    from mmrl.config.kinds import class_of_kind

    schema = class_of_kind(kind).model_json_schema()
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


@app.command()
def diff(first: FileOrJobArgument, second: FileOrJobArgument, json: JsonOption = False) -> None:
    """Print the values in which two configs differ: of files, run directories or jobs."""
    from mmrl.config.comparing import diff_configs

    a, b = _config_of(first), _config_of(second)
    differences = diff_configs(a, b)
    if json:
        sides = [(item.key, {"first": item.first, "second": item.second}) for item in differences]
        print_json([{"key": key} | {side: leaf.value for side, leaf in both.items() if leaf} for key, both in sides])
    elif differences:
        rows = [(item.key, _value(item.first), _value(item.second)) for item in differences]
        print_table(rows, ["key", a.source, b.source])
    else:
        print("no difference")


@app.command("import")
def import_peer(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file of verl or EasyR1, or a launch script.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", show_default=False, help="Settings in the peer's words that replace the file's."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help="Write the YAML there.")] = None,
    json: JsonOption = False,
) -> None:
    """Turn a config of verl or EasyR1 into one of mmrl and list what has no equal.

    The YAML goes to stdout, the list to stderr.
    """
    from mmrl.config.importing import import_config
    from mmrl.data.counting import count_rows
    from mmrl.data.files import write_bytes
    from mmrl.errors import ConflictError

    imported = import_config(config, overrides or (), count_rows=count_rows)
    text = imported.yaml()
    if out is not None:
        if out.exists():
            raise ConflictError(f"{out} exists already; give a file that does not")
        write_bytes(out, text.encode())
    if json:
        notes = [asdict(each) for each in imported.notes]
        shown = {"peer": imported.peer, "config": imported.data, "to_set": list(imported.to_set), "notes": notes}
        print_json(shown | {"out": str(out) if out else None})
        return
    if out is None:
        print(text, end="")
    for line in imported.to_set:
        note(f"SET {cell_text(line)}")
    note(f"from {imported.peer}: {len(imported.notes)} settings without an equal, or to look at")
    for each in imported.notes:
        note(f"  {cell_text(str(each))}")


def show_lines(leaves: Sequence[Leaf], width: int | None) -> list[str]:
    """`key=value  origin` for each leaf, the origins in one column.

    Where both do not fit in `width` the origin goes to a line of its own below.
    """
    pairs = [(f"{leaf.key}={_value(leaf)}", cell_text(leaf.origin)) for leaf in leaves]
    column = max(text_width(setting) for setting, _ in pairs)
    if width is not None:
        short_origins = [text_width(origin) for _, origin in pairs if text_width(origin) <= width // 3]
        column = min(column, width - 2 - max(short_origins, default=0))
    return [line for setting, origin in pairs for line in _setting_lines(setting, origin, column, width)]


def _config_of(text: str) -> LoadedConfig:
    """Of a path that exists or looks like one, else of a job."""
    from mmrl.config import load_config
    from mmrl.runs.layout import is_stored_config
    from mmrl.runs.mirror import is_address

    if is_address(text):
        return _stored_config(text, ())
    path = Path(text).expanduser()
    if path.exists() or "/" in text or path.suffix:
        return load_config(text, is_stored=is_stored_config(path))
    from mmrl.cli.job import open_jobs
    from mmrl.jobs.configs import config_of

    with open_jobs() as jobs:
        return config_of(jobs.get(text))


def _stored_config(address: str, overrides: Sequence[str]) -> LoadedConfig:
    """Of a run in a store."""
    from mmrl.config.loading import build_config
    from mmrl.runs.stored_run import StoredRun

    run = StoredRun(address)
    return build_config(run.config(), overrides, source=run.shown, is_stored=True)


def _setting_lines(setting: str, origin: str, column: int, width: int | None) -> list[str]:
    line = f"{setting}{' ' * (column - text_width(setting))}  {origin}"
    if width is None or (text_width(setting) <= column and text_width(line) <= width):
        return [line]
    indent = "    "
    return fold(setting, width) + [indent + part for part in fold(origin, width - len(indent))]


def _leaf_json(leaf: Leaf) -> dict[str, Any]:
    return {"key": leaf.key, "value": leaf.value, "origin": leaf.origin.kind, "where": leaf.origin.where or None}


def _value(leaf: Leaf | None) -> str:
    from mmrl.config.dump import value_text

    return "(none)" if leaf is None else cell_text(value_text(leaf.value))
