"""`mmrl checkpoint`: the checkpoints of a run, kept, evaluated, compared, and made into models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mmrl.cli.arguments import OverridesArgument, RunArgument
from mmrl.cli.output import JsonOption

app = typer.Typer(no_args_is_help=True, help="List, keep, evaluate, compare and export checkpoints.")

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="RUN or RUN@STEP (a number, best or last), or the folder of a checkpoint or a model."
    ),
]
StepOption = Annotated[
    str | None, typer.Option(metavar="N|best|last", show_default=False, help="The step; the last one if not given.")
]
StepNumberOption = Annotated[int, typer.Option(min=0, help="The step of the checkpoint.")]
OutOption = Annotated[Path, typer.Option(help="New or empty folder for the model.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", show_default=False, help="A config for a model that no run made: its rewards, rollout and data."
    ),
]
DataOption = Annotated[
    str | None, typer.Option(metavar="REF", show_default=False, help="The prompts, instead of the config's data.eval.")
]
PanelOption = Annotated[
    str | None, typer.Option(metavar="NAME", show_default=False, help="A panel of frozen prompts and settings.")
]
SavePanelOption = Annotated[
    str | None, typer.Option(metavar="NAME", show_default=False, help="Name of the panel that is frozen for this.")
]
SamplesOption = Annotated[
    int | None, typer.Option(min=1, show_default=False, help="Responses for each prompt (eval.samples_per_prompt).")
]
KOption = Annotated[
    list[int] | None,
    typer.Option(
        "--k",
        min=1,
        metavar="K",
        show_default=False,
        help="Tell pass@K and maj@K, of at most --samples; may be repeated (eval.k).",
    ),
]
TemperatureOption = Annotated[
    float | None, typer.Option(min=0, show_default=False, help="Temperature; 0 is greedy (eval.temperature).")
]
LimitOption = Annotated[int | None, typer.Option(min=1, show_default=False, help="Only the first so many prompts.")]
MetricOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME", show_default=False, help="accuracy, reward, pass@K or maj@K.")
]
AdapterOption = Annotated[
    bool, typer.Option("--adapter", help="Only the adapter of a run with model.lora, as peft loads it.")
]
AnswersOption = Annotated[
    bool,
    typer.Option(
        "--compare-answers/--skip-answers", help="Load the export again and compare its greedy answers with the run's."
    ),
]
NoteOption = Annotated[str | None, typer.Option(show_default=False, help="Why it is kept.")]


@app.command("list")
def list_checkpoints(run: RunArgument, json: JsonOption = False) -> None:
    """List the whole checkpoints of a run; one that was cut off while it was written is no checkpoint."""
    from mmrl.cli.output import note, print_json, print_table
    from mmrl.runs.checkpoint_refs import best_rule, checkpoints_of, config_of_run

    checkpoints = checkpoints_of(run)
    if json:
        print_json([{**vars(point), "path": where} for point, where in checkpoints])
    elif not checkpoints:
        note("no checkpoint was written yet")
    else:
        metric = best_rule(config_of_run(run))[0] or "eval/reward"
        columns = ("step", "MiB", metric, "pinned", "path")
        rows = [
            (point.step, f"{point.num_bytes / 2**20:.1f}", point.metrics.get(metric), point.is_pinned, where)
            for point, where in checkpoints
        ]
        print_table(rows, columns)


@app.command("pin")
def pin(run: RunArgument, step: StepOption = None, why: NoteOption = None, json: JsonOption = False) -> None:
    """Keep a checkpoint whatever the run's retention says."""
    from mmrl.cli.output import print_json
    from mmrl.runs.pins import pin_checkpoint

    ref = _checkpoint(run, step)
    pin_checkpoint(ref, note=why or "")
    print_json({"step": _step_of(ref), "path": ref, "pinned": True}) if json else typer.echo(ref)


@app.command("unpin")
def unpin(run: RunArgument, step: StepOption = None, json: JsonOption = False) -> None:
    """Leave a checkpoint to the run's retention again."""
    from mmrl.cli.output import print_json
    from mmrl.runs.pins import unpin_checkpoint

    ref = _checkpoint(run, step)
    unpin_checkpoint(ref)
    print_json({"step": _step_of(ref), "path": ref, "pinned": False}) if json else typer.echo(ref)


@app.command("evaluate")
def evaluate(
    checkpoint: ModelArgument,
    overrides: OverridesArgument = None,
    step: StepOption = None,
    config: ConfigOption = None,
    data: DataOption = None,
    panel: PanelOption = None,
    save_panel: SavePanelOption = None,
    samples: SamplesOption = None,
    k: KOption = None,
    temperature: TemperatureOption = None,
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """Answer held-out prompts with a checkpoint, grade them, and keep the evaluation beside the run.

    Settings are those of the run, changed by KEY=VALUE, such as reward=[{type: exact}] rollout.engine=vllm.
    """
    from mmrl.cli import evaluation_text
    from mmrl.cli.evaluating import evaluate_reference
    from mmrl.cli.output import note, print_json

    words = list(overrides or ())
    words += [f"eval.samples_per_prompt={samples}"] if samples is not None else []
    words += [f"eval.k=[{','.join(map(str, k))}]"] if k else []
    words += [f"eval.temperature={temperature}"] if temperature is not None else []
    evaluation = evaluate_reference(
        checkpoint,
        step=step,
        config=config,
        overrides=words,
        data=data,
        panel=panel,
        name=save_panel,
        limit=limit,
        say=note,
    )
    if json:
        print_json(evaluation_text.as_json(evaluation))
    else:
        evaluation_text.print_evaluation(evaluation)


@app.command("compare")
def compare(
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="A B …", help="RUN@STEP, model folders, or evaluations by folder or id.")
    ],
    metric: MetricOption = None,
    panel: PanelOption = None,
    json: JsonOption = False,
) -> None:
    """Compare evaluated checkpoints prompt by prompt with the first of them; what else differs is said."""
    from mmrl.cli import evaluation_text
    from mmrl.cli.output import print_json
    from mmrl.evaluation.comparison import compare_evaluations
    from mmrl.evaluation.finding import comparable

    comparison = compare_evaluations(comparable(checkpoints, panel=panel), metrics=tuple(metric or ("accuracy",)))
    if json:
        print_json(evaluation_text.comparison_json(comparison))
    else:
        evaluation_text.print_comparison(comparison)


@app.command("export")
def export(
    checkpoint: ModelArgument,
    out: OutOption,
    step: StepOption = None,
    adapter: AdapterOption = False,
    compare_answers: AnswersOption = True,
    json: JsonOption = False,
) -> None:
    """Make a model folder of a checkpoint that `from_pretrained`, vLLM and the rewards load, verified, with a card."""
    from mmrl.cli.output import note, print_json
    from mmrl.runs.checkpoint_refs import resolve_model
    from mmrl.trainer.export import ExportForm, export_checkpoint

    ref = resolve_model(checkpoint, step)
    form: ExportForm = "adapter" if adapter else "merged"
    folder = export_checkpoint(ref, out.expanduser(), form=form, compare_answers=compare_answers, say=note)
    if json:
        print_json({"step": ref.step, "path": folder.absolute()})
    else:
        typer.echo(folder)


def _checkpoint(run: str, step: str | None) -> Path:
    """The folder of a checkpoint of a run. Raises NotFoundError for a model that is none, ConfigError for a run in a
    store: its checkpoints are removed by the machine that trains, which sees its own folder alone."""
    from mmrl.errors import ConfigError, NotFoundError
    from mmrl.runs.checkpoint_refs import resolve_model
    from mmrl.runs.mirror import is_address, local_folder

    if is_address(run):
        raise ConfigError(
            f"{run} is in a store, and what is kept there is decided where it trains: name the run's folder on that "
            f"machine, {local_folder(run)}, or make a model of the checkpoint with `mmrl checkpoint export`"
        )
    ref = resolve_model(run, step)
    if ref.checkpoint is None:
        raise NotFoundError(f"{run} is a model and no checkpoint of a run, so nothing would delete it")
    return ref.checkpoint


def _step_of(folder: Path) -> int | None:
    from mmrl.runs.layout import parse_checkpoint_name

    return parse_checkpoint_name(folder.name)
