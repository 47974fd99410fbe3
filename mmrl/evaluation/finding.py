"""Evaluations by what a user calls them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mmrl.config.base import home
from mmrl.errors import NotFoundError
from mmrl.evaluation.records import EVALUATION_FILE, FOLDER, Evaluation, evaluations_in, models_root, read_evaluation
from mmrl.runs.checkpoint_refs import resolve_model


def all_evaluations() -> list[Evaluation]:
    """Those of all runs under mmrl's home and of models that no run made, the oldest first."""
    runs = home() / "runs"
    roots = [*(sorted(runs.iterdir()) if runs.is_dir() else []), models_root()]
    found = [evaluation for root in roots for evaluation in evaluations_in(root)]
    return sorted(found, key=lambda evaluation: (evaluation.created_at, evaluation.id))


def find_evaluations(text: str) -> list[Evaluation]:
    """What `text` names, the newest last: the folder or the id of one, or all those of a model (`resolve_model`).

    Raises NotFoundError that says how to make one.
    """
    path = Path(text).expanduser()
    if (path / EVALUATION_FILE).is_file():
        return [read_evaluation(path)]
    by_id = [evaluation for evaluation in all_evaluations() if evaluation.id == text]
    if by_id:
        return by_id
    ref = resolve_model(text)
    root = ref.run_dir or models_root()
    own = [each for each in evaluations_in(root) if Path(each.model.path) == ref.model or _is_step(each, ref.step)]
    if not own:
        raise NotFoundError(
            f"{text}: {ref.label} has no evaluation in {root / FOLDER}; make one with `mmrl checkpoint evaluate {text}`"
        )
    return own


def comparable(texts: Sequence[str], *, panel: str | None = None) -> list[Evaluation]:
    """One evaluation for each text, the newest, all of one panel if there is one that all have been asked.

    panel: its name or hash, if it is to be a certain one. Raises NotFoundError where an evaluation is missing.
    """
    found = [find_evaluations(text) for text in texts]
    if panel is not None:
        found = [[each for each in own if panel in (each.panel, each.panel_hash)] for own in found]
        for text, own in zip(texts, found, strict=True):
            if not own:
                raise NotFoundError(
                    f"{text} was not evaluated on panel {panel!r}; `mmrl checkpoint evaluate` does that"
                )
    shared = set.intersection(*({each.panel_hash for each in own} for own in found))
    if not shared:
        return [own[-1] for own in found]
    newest = max((each for each in found[0] if each.panel_hash in shared), key=lambda each: each.created_at)
    return [[each for each in own if each.panel_hash == newest.panel_hash][-1] for own in found]


def _is_step(evaluation: Evaluation, step: int | None) -> bool:
    return step is not None and evaluation.model.step == step
