"""`mmrl dataset split`: a data set divided in what is trained on and what is held out."""

from __future__ import annotations

from typing import Annotated

import typer

from mmrl.cli.output import JsonOption, note, print_json


def split(
    ref: Annotated[str, typer.Argument(metavar="NAME[@SPLIT]", help="A registered data set, or one split of it.")],
    share: Annotated[float, typer.Option(help="Share of the rows that are held out.")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Another one holds out other rows.")] = 0,
    into: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="REST HELD", show_default=False, help="Names; NAME-rest and NAME-heldout if not given."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Register the rows of a split as two data sets, of which no prompt and no image is in both."""
    from mmrl.cli.dataset_text import info_to_json, splits_text
    from mmrl.data.dividing import divide_dataset
    from mmrl.data.registry import DatasetRegistry
    from mmrl.data.sources import pick_split

    name, _, wanted = ref.partition("@")
    info = DatasetRegistry().find(name)
    chosen = pick_split({each: each for each in info.splits}, wanted or None, of=name)
    names = into or (f"{name}-rest", f"{name}-heldout")
    divided = divide_dataset(name, split=chosen, share=share, seed=seed, into=names)
    if json:
        print_json({"rest": info_to_json(divided.rest), "held_out": info_to_json(divided.held_out)})
        return
    for each in (divided.rest, divided.held_out):
        typer.echo(f"{each.name} version {each.version}: {splits_text(each)}")
    note(f"data: {{train: {names[0]}@{chosen}, eval: {names[1]}@{chosen}}}")
