"""`mmrl reward`: what rewards there are, and what a config's rewards make of answers of known quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmrl.cli.arguments import RunArgument
from mmrl.cli.output import JsonOption

if TYPE_CHECKING:
    from mmrl.rewards.catalogue import RewardField
    from mmrl.rewards.probes import ProbeSummary, Trial

app = typer.Typer(no_args_is_help=True, help="List rewards and try them on answers.")

ConfigArgument = Annotated[str, typer.Argument(metavar="CONFIG", help="A config file, or a folder with config.yaml.")]
OverridesArgument = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")]
LimitOption = Annotated[int, typer.Option(min=1, help="Rows of the data to try.")]

_PROBLEMS_SHOWN = 10


@app.command("list")
def list_rewards(json: JsonOption = False) -> None:
    """List every reward with what it does and what can be set."""
    from mmrl.cli.output import print_json
    from mmrl.rewards.catalogue import reward_types

    types = reward_types()
    if json:
        print_json({"rewards": types})
        return
    for index, reward in enumerate(types):
        print(f"{'' if index == 0 else chr(10)}{reward.type}: {reward.description}")
        for field in reward.fields:
            print(f"  {_field_text(field)}")


@app.command("test")
def try_out(
    config: ConfigArgument, overrides: OverridesArgument = None, limit: LimitOption = 50, json: JsonOption = False
) -> None:
    """Try a config's rewards on rows of its data.

    Each row is answered with its reference (in a box and plain), a wrong answer, a box that is never closed, a wrong
    answer that asks for full marks, and nothing.
    """
    from mmrl.cli.output import note, print_json
    from mmrl.config.loading import load_config
    from mmrl.data import load_dataset
    from mmrl.errors import ConfigError
    from mmrl.rewards.probes import find_problems, summarise, try_rewards
    from mmrl.rewards.runner import RewardRunner

    run = load_config(config, overrides or ()).run_config
    if not run.reward:
        raise ConfigError(f"{config} names no rewards to try; add some, such as `reward: [{{type: exact}}]`")
    ref = run.data.eval or run.data.train_parts[0].name
    samples = load_dataset(ref, limit=limit)
    with RewardRunner(run.reward, run.reward_runner) as runner:
        trials = try_rewards(runner, samples)
    summaries, problems = summarise(trials), find_problems(trials)
    if json:
        print_json(_as_json(ref, len(samples), summaries, problems, trials))
        return
    note(f"{len(samples)} rows of {ref}; means of what could be scored")
    _print_summaries(summaries)
    _print_problems(problems)


@app.command("rescore")
def rescore(
    run: RunArgument,
    overrides: OverridesArgument = None,
    config: Annotated[
        str | None, typer.Option(metavar="NEW.yaml", help="A config, or only its `reward`; the rest is the run's own.")
    ] = None,
    split: Annotated[str, typer.Option(help="train or eval.")] = "train",
    steps: Annotated[str | None, typer.Option(help="One step, or a range such as 5:10; all if not given.")] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Show so many responses, those that moved most; --json shows all else.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Score the responses that a run kept with a changed reward, and show what moved.

    For the total and each part: means before and after, and how many rose and fell. For groups: whose order and best
    response change, and how many advantages change their sign.
    """
    from mmrl.cli.reward_rescore import rescore_run

    rescore_run(run, config, overrides or (), split=split, steps=steps, top=top, json=json)


@app.command("agreement")
def agreement(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    marks: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Data of `chosen` and `rejected`; the config's data if not given."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many pairs.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare a config's rewards with people: on how many pairs does the preferred answer get more.

    For the total and each part: pairs that it orders as people do, or the other way round, to which it gives the same
    value, and the share that agrees with its interval.
    """
    from mmrl.cli.reward_agreement import compare_with_people
    from mmrl.config.loading import load_config

    data = load_config(config, overrides or ()).run_config.data
    source = marks or data.eval or data.train_parts[0].name
    compare_with_people(config, overrides or (), marks=source, limit=limit, json=json)


def _print_summaries(summaries: Sequence[ProbeSummary]) -> None:
    from mmrl.cli.output import print_table

    parts = list(summaries[0].part_means) if summaries else []
    rows = [
        [row.probe, row.responses, row.mean, row.missing, *(row.part_means[part] for part in parts)]
        for row in summaries
    ]
    print_table(rows, ["response", "tried", "reward", "missing", *parts])


def _print_problems(problems: Sequence[str]) -> None:
    from mmrl.cli.output import note

    for problem in problems[:_PROBLEMS_SHOWN]:
        note(f"- {problem}")
    if len(problems) > _PROBLEMS_SHOWN:
        note(f"{len(problems)} problems in all; --json lists them")


def _field_text(field: RewardField) -> str:
    default = "required" if field.required else f"default {field.default!r}"
    return f"{field.name} ({field.type}, {default}): {field.description}"


def _as_json(
    ref: str, num_samples: int, summaries: Sequence[ProbeSummary], problems: Sequence[str], trials: Sequence[Trial]
) -> dict[str, Any]:
    return {
        "data": ref,
        "samples": num_samples,
        "probes": summaries,
        "problems": problems,
        "responses": [
            {
                "probe": trial.probe,
                "sample": trial.sample.id,
                "answer": trial.sample.answer,
                "response": trial.response,
                "total": trial.result.total,
                "parts": trial.result.parts,
            }
            for trial in trials
        ],
    }
