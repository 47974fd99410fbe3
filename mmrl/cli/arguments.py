"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigArgument = Annotated[
    Path, typer.Argument(metavar="CONFIG", show_default=False, help="A YAML file, or a run directory.")
]
RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run directory, its name under MMRL_HOME/runs, or its address in a store."),
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", show_default=False, help="Settings that replace the file's."),
]
OptionalConfigArgument = Annotated[
    str | None, typer.Argument(metavar="CONFIG", show_default=False, help="A YAML file, or a run directory.")
]
OptionalRunDirOption = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        show_default=False,
        help="Folder of the run, made if missing; or one in an object store, s3://BUCKET/PATH.",
    ),
]
ReplayOption = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="FILE",
        show_default=False,
        help="The fault.json in RUN/attempt-N/faults/step-NNNNNN, which a run wrote when a number was not finite.",
    ),
]
ResumeOption = Annotated[
    str,
    typer.Option(
        "--resume",
        metavar="auto|never|CHECKPOINT",
        help="auto goes on from the newest whole checkpoint in the run directory, never takes only a new one, and the "
        "folder of a checkpoint goes on from that.",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Read config, data and model, tell what the run would do, write nothing.")
]
