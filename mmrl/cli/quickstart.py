"""`mmrl quickstart`: from nothing to a trained vision-language model on one CPU machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OutOption = Annotated[Path | None, typer.Option(help="Folder for model and runs; MMRL_HOME/quickstart if not given.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Everything random follows from it.")]
PrepareOption = Annotated[bool, typer.Option("--prepare", help="Stop after data, model and SFT warm start.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]


def quickstart(
    out: OutOption = None, seed: SeedOption = 0, prepare: PrepareOption = False, json: JsonOption = False
) -> None:
    """Train a tiny vision-language model on real images: SFT warm start, then GRPO; a few minutes on two cores."""
    from mmrl.cli.output import print_json
    from mmrl.trainer import quickstart as steps

    folder = (out or steps.default_out()).expanduser().resolve()
    if prepare:
        prepared = steps.prepare(folder, seed=seed)
        if json:
            print_json({"accuracy_before": prepared.accuracy_before, "model": str(prepared.model)})
        else:
            typer.echo(_prepared_text(prepared.accuracy_before, prepared.model, seed))
        return
    result = steps.quickstart(folder, seed=seed)
    if json:
        print_json(result.to_json())
    else:
        typer.echo(_result_text(result.accuracy_before, result.accuracy_after, result.seconds, result.run_dir))


def _prepared_text(accuracy: float, model: Path, seed: int) -> str:
    return (
        f"warm start: {accuracy:.1%} of the test images named right (half of its labels were wrong)\n"
        f"model:      {model}\n\n"
        "Next, the GRPO run:\n"
        f"  mmrl run configs/quickstart.yaml seed={seed} model.path={model}"
    )


def _result_text(before: float, after: float, seconds: float, run_dir: str) -> str:
    return (
        "greedy accuracy on 297 test images that training never saw\n"
        f"  before GRPO (SFT on half-wrong labels)  {before:.1%}\n"
        f"  after GRPO                              {after:.1%}\n"
        f"  seconds                                 {seconds:.0f}\n"
        f"  run directory                           {run_dir}\n\n"
        "Next:\n"
        f"  mmrl sample show {run_dir} --step 1     read what the model answered\n"
        f"  tensorboard --logdir {run_dir}          see the curves\n"
        "  mmrl run configs/quickstart.yaml        run GRPO by itself, with any setting changed\n\n"
        "Or in a browser, with data, new runs and their curves:\n"
        "  mmrl console"
    )
