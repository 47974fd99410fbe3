"""`mmrl reward rescore`: what a changed reward makes of the responses that a run kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.runs.rescore import Comparison, Moved, Rescored

MOST_SHOWN = 5


def rescore_run(
    run: str,
    config: str | None,
    overrides: Sequence[str],
    *,
    split: str,
    steps: str | None,
    top: int | None,
    json: bool,
) -> None:
    """top: only so many responses and groups, those that moved most; None takes all.

    Raises NotFoundError for no run, step or samples, and ConfigError for a config that does not load."""
    from mmrl.cli.output import note, print_json
    from mmrl.config.loading import load_over
    from mmrl.errors import ConfigError, NotFoundError
    from mmrl.rewards.runner import RewardRunner
    from mmrl.runs.layout import CONFIG_FILE
    from mmrl.runs.reader import RunReader
    from mmrl.runs.rescore import compare, is_whole, most_moved, rescore
    from mmrl.runs.rescore_views import rank_correlation
    from mmrl.runs.stored_run import run_folder

    reader = RunReader(run_folder(run))
    source = str(reader.run_dir / CONFIG_FILE)
    changed = load_over(config, reader.config(), overrides, source=source).run_config
    if not changed.reward:
        raise ConfigError(f"{config or source} names no rewards; add some, such as `reward: [{{type: exact}}]`")
    wanted = _chosen_steps(reader.steps(split), steps, split)
    records = [group for step in wanted for group in reader.sample_groups(step, split)]
    whole = [record for record in records if is_whole(record)]
    if not whole:
        raise NotFoundError(
            f"{reader.run_dir}: none of the {len(records)} groups of {split} was kept with its text; raise "
            "record.full_tokens_per_step in the next run"
        )
    with RewardRunner(changed.reward, changed.reward_runner) as runner:
        groups = rescore(runner, whole, say=lambda done, num: note(f"scored {done:,} of {num:,} responses"))
    comparison = compare(groups, skipped_groups=len(records) - len(whole))
    if json:
        where = {"run_dir": str(reader.run_dir), "split": split, "steps": wanted}
        print_json(where | asdict(comparison) | _views(groups, top))
        return
    _print_comparison(comparison, rank_correlation(groups))
    _print_examples(most_moved(groups, MOST_SHOWN if top is None else top))


def _views(groups: Sequence[Sequence[Rescored]], top: int | None) -> dict[str, Any]:
    from mmrl.runs.rescore import most_moved
    from mmrl.runs.rescore_views import distribution, moved_groups, rank_correlation

    found = distribution(groups)
    rows = [row for group in groups for row in group] if top is None else most_moved(groups, top)
    return {
        "rank_correlation": rank_correlation(groups),
        "distribution": None if found is None else asdict(found),
        "moved_groups": [asdict(group) for group in moved_groups(groups)[:top]],
        "rows": [_row(row) for row in rows],
    }


def _chosen_steps(kept: Sequence[int], wanted: str | None, split: str) -> list[int]:
    """All steps, one (`7`), or a range whose last is left out (`5:10`, `5:`, `:10`)."""
    from mmrl.errors import ConfigError, NotFoundError

    first, colon, last = (wanted or ":").partition(":")
    if any(bound and not bound.isdigit() for bound in (first, last)):
        raise ConfigError(f"--steps takes a step or a range, such as 7, 5:10, 5: or :10 (got {wanted!r})")
    low = int(first) if first else 0
    high = (int(last) if last else max(kept, default=0) + 1) if colon else low + 1
    chosen = [step for step in kept if low <= step < high]
    if not chosen:
        there = ", ".join(map(str, kept)) or "none"
        end = f" (a range leaves out its end: {low}:{low + 1} is step {low})" if colon and last and high <= low else ""
        raise NotFoundError(
            f"no samples of {split} were kept in steps {wanted or 'of any number'}{end}; there are: {there}"
        )
    return chosen


def _print_comparison(comparison: Comparison, correlation: float | None) -> None:
    from mmrl.cli.output import note, print_table

    skipped = f"; {comparison.skipped_groups} groups without text left out" if comparison.skipped_groups else ""
    note(f"{comparison.responses} responses in {comparison.groups} groups{skipped}")
    columns = ["value", "before", "after", "up", "down", "missing before", "missing after"]
    print_table([_cells(moved) for moved in (comparison.total, *comparison.parts)], columns)
    print()
    facts: list[list[Any]] = [
        ["rank correlation of totals (Spearman)", _number(correlation) if correlation is not None else "not defined"],
        ["pairs of responses in another order", f"{comparison.pairs_swapped} of {comparison.pairs}"],
        ["groups with another best response", f"{comparison.best_changed} of {comparison.groups}"],
        ["advantages that turn positive", comparison.flips_to_positive],
        ["advantages that turn negative", comparison.flips_to_negative],
        ["groups that teach something now", comparison.gained_spread],
        ["groups that teach nothing any more", comparison.lost_spread],
    ]
    print_table(facts, ["what moved", "number"])


def _cells(moved: Moved) -> list[Any]:
    return list(asdict(moved).values())


def _print_examples(rows: Sequence[Rescored]) -> None:
    from mmrl.runs.inert import inert

    for row in rows:
        flip = ", advantage flips" if row.flips else ""
        where = f"step {row.step}, group {row.group_id}, response {row.sample_idx}"
        print(f"\n{where}: {_number(row.before.total)} -> {_number(row.after.total)}{flip}")
        print(f"  {inert(row.text, one_line=True)[:200] or '(empty response)'}")
        for part in row.after.parts:
            print(f"  {part.name} {_number(part.value)}: {inert(part.error or part.explanation or '', one_line=True)}")


def _row(row: Rescored) -> dict[str, Any]:
    return {
        "step": row.step,
        "group_id": row.group_id,
        "sample_idx": row.sample_idx,
        "text": row.text,
        "total_before": row.before.total,
        "total_after": row.after.total,
        "advantage_before": row.advantage_before,
        "advantage_after": row.advantage_after,
        "flips": row.flips,
        "parts_before": [asdict(part) for part in row.before.parts],
        "parts_after": [asdict(part) for part in row.after.parts],
    }


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.3f}"
