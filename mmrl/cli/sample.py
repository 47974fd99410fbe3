"""`mmrl sample`: the responses that a run sampled, with their rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mmrl.cli.arguments import RunArgument
from mmrl.cli.output import JsonOption

if TYPE_CHECKING:
    from mmrl.runs.records import GroupRecord

app = typer.Typer(no_args_is_help=True, help="Read the responses that a run sampled, beside their prompts and rewards.")

StepOption = Annotated[int | None, typer.Option(min=0, help="A step whose samples were kept.")]
SplitOption = Annotated[str | None, typer.Option(help="train or eval.")]
GroupOption = Annotated[int | None, typer.Option(min=0, help="Only this group (its number as `list --step` shows it).")]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Most groups shown; if not given, 5 as text, all as JSON.")
]
TokensOption = Annotated[bool, typer.Option("--tokens", help="With --json: token ids and log-probabilities too.")]

StepsOption = Annotated[
    str, typer.Option(metavar="N,N,…", help="Steps whose samples were kept; best and last are those of checkpoints.")
]

DEFAULT_LIMIT = 5


@app.command("list")
def list_samples(
    run: RunArgument, step: StepOption = None, split: SplitOption = None, json: JsonOption = False
) -> None:
    """List the steps whose samples were kept; with --step, the groups of that step."""
    from mmrl.cli import sample_json, sample_text
    from mmrl.cli.output import print_json
    from mmrl.runs.reader import RunReader
    from mmrl.runs.stored_run import run_folder

    reader = RunReader(run_folder(run))
    if step is None:
        summaries = reader.sample_summaries(split)
        print_json(sample_json.summaries(summaries)) if json else sample_text.print_summaries(summaries)
        return
    step, split = reader.find_samples(step, split)
    groups = reader.sample_groups(step, split, with_tokens=False)
    print_json(sample_json.group_rows(groups)) if json else sample_text.print_group_rows(groups)


@app.command("show")
def show_samples(
    run: RunArgument,
    step: StepOption = None,
    split: SplitOption = None,
    group: GroupOption = None,
    limit: LimitOption = None,
    tokens: TokensOption = False,
    json: JsonOption = False,
) -> None:
    """Show prompt, images and responses of a step (the last one if not given), the best response first."""
    from mmrl.cli import sample_json, sample_text
    from mmrl.cli.output import note, print_json
    from mmrl.runs.reader import RunReader
    from mmrl.runs.stored_run import run_folder

    reader = RunReader(run_folder(run))
    step, split = reader.find_samples(step, split)
    groups = reader.sample_groups(step, split, with_tokens=tokens)
    total = len(groups)
    if group is not None:
        groups = [_pick(groups, group)]
    if json:
        print_json(sample_json.shown(reader, groups[:limit], num_groups=total, with_tokens=tokens))
        return
    shown = groups[: limit or DEFAULT_LIMIT]
    sample_text.print_groups(reader, shown, num_groups=total)
    if len(shown) < len(groups):
        note(f"{len(shown)} of {len(groups)} groups; all with --limit {len(groups)}, one with --group N")


@app.command("compare")
def compare_samples(
    run: RunArgument,
    steps: StepsOption,
    split: SplitOption = "eval",
    group: GroupOption = None,
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """Show the same prompts at several steps side by side, such as --steps 0,100,best; without torch."""
    from mmrl.cli import sample_compare
    from mmrl.cli.output import note, print_json
    from mmrl.runs.reader import RunReader
    from mmrl.runs.stored_run import run_folder

    reader = RunReader(run_folder(run))
    compared = sample_compare.compare_steps(reader, steps, run=run, split=split or "eval")
    rows = compared.rows if group is None else compared.rows[group : group + 1]
    if json:
        print_json(sample_compare.as_json(reader, compared, rows[:limit]))
        return
    shown = rows[: limit or DEFAULT_LIMIT]
    sample_compare.print_comparison(reader, compared, shown)
    if len(shown) < len(rows):
        note(f"{len(shown)} of {len(rows)} prompts; all with --limit {len(rows)}, one with --group N")


def _pick(groups: Sequence[GroupRecord], number: int) -> GroupRecord:
    from mmrl.errors import NotFoundError

    for group in groups:
        if group.group_id == number:
            return group
    last = groups[-1].group_id
    raise NotFoundError(f"step {groups[0].step} has no group {number}; its {groups[0].split} groups are 0 to {last}")
