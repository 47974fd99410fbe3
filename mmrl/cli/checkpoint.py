"""`mmrl checkpoint`: the checkpoints of a run, and a model folder made from one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mmrl.cli.output import JsonOption

app = typer.Typer(no_args_is_help=True, help="List a run's checkpoints and export one as a model.")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or its name under MMRL_HOME/runs.")]
StepOption = Annotated[int, typer.Option(min=0, help="The step of the checkpoint.")]
OutOption = Annotated[Path, typer.Option(help="New or empty folder for the model.")]


@app.command("list")
def list_checkpoints(run: RunArgument, json: JsonOption = False) -> None:
    """List the whole checkpoints of a run; one that was cut off while it was written is no checkpoint."""
    from mmrl.cli.output import note, print_json, print_table
    from mmrl.runs.layout import resolve_run
    from mmrl.runs.reader import RunReader

    checkpoints = RunReader(resolve_run(run)).checkpoints()
    if json:
        print_json(checkpoints)
    elif not checkpoints:
        note("no checkpoint was written yet")
    else:
        columns = ("step", "MiB", "eval/reward", "path")
        rows = [
            (point.step, f"{point.num_bytes / 2**20:.1f}", point.metrics.get("eval/reward"), point.path)
            for point in checkpoints
        ]
        print_table(rows, columns)


@app.command("export")
def export(run: RunArgument, step: StepOption, out: OutOption, json: JsonOption = False) -> None:
    """Copy the model of a checkpoint to a folder of its own that `from_pretrained` loads."""
    from mmrl.cli.output import print_json
    from mmrl.runs.layout import resolve_run
    from mmrl.trainer.export import export_checkpoint

    folder = export_checkpoint(resolve_run(run), step, out.expanduser())
    if json:
        print_json({"step": step, "path": folder.absolute()})
    else:
        typer.echo(folder)
