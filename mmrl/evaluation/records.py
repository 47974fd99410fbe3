"""An evaluation on disk: what was asked, of which model, what came of it, and every response.

<run-dir>/evaluations/<id>/, or MMRL_HOME/evaluations/<id>/ for a model that no run made
    evaluation.json    panel, model, versions, metrics
    responses.parquet  a row a response, in the form of a run's samples; greedy ones in greedy.parquet
The id ends in a hash of all that: the same evaluation again is the same folder. Images lie with the panel.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmrl.config.base import home
from mmrl.data.serialise import canonical
from mmrl.errors import DataError, NotFoundError
from mmrl.evaluation.intervals import Estimate
from mmrl.evaluation.outcomes import PromptOutcome, grade_of, source_of
from mmrl.evaluation.panels import Panel, PanelSettings, panel_image
from mmrl.evaluation.summary import Summary
from mmrl.evaluation.versions import Versions
from mmrl.runs.disk import plain, write_whole
from mmrl.runs.recording import choose_groups
from mmrl.runs.records import GroupRecord
from mmrl.runs.shards import encode_shard
from mmrl.types import ScoredGroup

EVALUATION_FILE = "evaluation.json"
RESPONSES_FILE = "responses.parquet"
GREEDY_FILE = "greedy.parquet"
FOLDER = "evaluations"


@dataclass(frozen=True)
class EvaluatedModel:
    """path: of the model's folder. run, step: of the checkpoint that it is of, None for any other model.

    fingerprint: SHA-256 over its weights and configuration, as their files have it.
    """

    path: str
    fingerprint: str
    run: str | None = None
    step: int | None = None

    @property
    def label(self) -> str:
        return Path(self.path).name if self.run is None else f"{self.run}@{self.step}"


@dataclass(frozen=True)
class Evaluation:
    """panel: its name and hash; data: what the prompts came from. part, at_least: when a response was right.

    greedy: the metrics of the greedy responses beside sampled ones; None where there are none. engine, dtype: what
    sampled. folder: where it lies; None before it was written.
    """

    panel: str
    panel_hash: str
    data: str
    settings: PanelSettings
    model: EvaluatedModel
    versions: Versions
    part: str | None
    at_least: float
    summary: Summary
    greedy: Summary | None
    engine: str
    dtype: str
    created_at: str = ""
    folder: Path | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        assert self.folder is not None, "it has an id once it was written"
        return self.folder.name

    def groups(self, *, with_tokens: bool = False, greedy: bool = False) -> list[GroupRecord]:
        """Every prompt with its responses, in the order of the panel."""
        from mmrl.runs.decoding import read_groups

        assert self.folder is not None, "responses are read from where they were written"
        return read_groups(self.folder / (GREEDY_FILE if greedy else RESPONSES_FILE), with_tokens=with_tokens)

    def image(self, sha256: str) -> Path | None:
        """Where an image of the prompts lies; None if it is gone."""
        return panel_image(self.panel, sha256)

    def outcomes(self) -> list[PromptOutcome]:
        """What came of each prompt, graded as then."""
        return [outcome_of_record(group, part=self.part, at_least=self.at_least) for group in self.groups()]


def outcome_of_record(group: GroupRecord, *, part: str | None, at_least: float) -> PromptOutcome:
    """The same as `outcomes.outcome_of`, of a group that was read back."""
    grades = [grade_of(response, part=part, at_least=at_least) for response in group.responses]
    return PromptOutcome(
        prompt_id=group.prompt_id,
        source=source_of(group.meta),
        correct=tuple(right for right, _ in grades),
        answers=tuple(answer for _, answer in grades),
        rewards=tuple(response.reward for response in group.responses),
        lengths=tuple(response.length for response in group.responses),
        truncated=tuple(response.is_truncated for response in group.responses),
    )


def write_evaluation(
    evaluation: Evaluation,
    panel: Panel,
    groups: Sequence[ScoredGroup],
    greedy: Sequence[ScoredGroup],
    *,
    root: Path,
) -> Evaluation:
    """Writes it under `root` (a run directory or mmrl's home) and returns it with its folder."""
    step = evaluation.model.step or 0
    shards = {RESPONSES_FILE: _shard(groups, "evaluation", step)}
    if greedy:
        shards[GREEDY_FILE] = _shard(greedy, "evaluation-greedy", step)
    described = _to_json(evaluation)
    answers = [_answers(group) for group in (*groups, *greedy)]
    digest = hashlib.sha256(canonical([described, answers]).encode())
    where = f"step-{step:06d}" if evaluation.model.step is not None else "model"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{panel.name[:40]}-{where}-{digest.hexdigest()[:12]}")
    folder = root / FOLDER / name
    if not (folder / EVALUATION_FILE).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file, data in shards.items():
            write_whole(folder / file, data)
        described["created_at"] = datetime.now(UTC).isoformat(timespec="seconds")
        write_whole(folder / EVALUATION_FILE, json.dumps(described, indent=1).encode())
    return read_evaluation(folder)


def read_evaluation(folder: Path) -> Evaluation:
    """Raises NotFoundError for a folder that holds none, DataError for one that is damaged."""
    try:
        values = json.loads((folder / EVALUATION_FILE).read_bytes())
        return Evaluation(
            panel=values["panel"]["name"],
            panel_hash=values["panel"]["hash"],
            data=values["panel"]["data"],
            settings=PanelSettings.from_json(values["panel"]["settings"]),
            model=EvaluatedModel(**values["model"]),
            versions=Versions(**values["versions"]),
            part=values["correct"]["part"],
            at_least=values["correct"]["at_least"],
            summary=_summary(values["summary"]),
            greedy=None if values["greedy"] is None else _summary(values["greedy"]),
            engine=values["engine"],
            dtype=values["dtype"],
            created_at=values.get("created_at", ""),
            folder=folder,
        )
    except FileNotFoundError:
        raise NotFoundError(f"{folder} holds no evaluation ({EVALUATION_FILE} is missing)") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / EVALUATION_FILE} is damaged ({error}); evaluate again") from error


def evaluations_in(root: Path) -> list[Evaluation]:
    """Those under a run directory, or under mmrl's home, the oldest first; damaged ones are left out."""
    found = []
    for path in sorted((root / FOLDER).glob(f"*/{EVALUATION_FILE}")):
        try:
            found.append(read_evaluation(path.parent))
        except (DataError, NotFoundError):
            continue
    return sorted(found, key=lambda evaluation: (evaluation.created_at, evaluation.id))


def models_root() -> Path:
    """Where evaluations of models lie that no run made."""
    return home()


def _shard(groups: Sequence[ScoredGroup], split: str, step: int) -> bytes:
    return encode_shard(groups, choose_groups(groups, step=step, budget=None), attempt=0, split=split, step=step)


def _answers(group: ScoredGroup) -> list[Any]:
    """What of a group the evaluation's id depends on: how long rewards took does not count."""
    totals = [result.total for result in group.rewards]
    return plain([group.group.sample.id, [rollout.token_ids for rollout in group.group.rollouts], totals])


def _to_json(evaluation: Evaluation) -> dict[str, Any]:
    values: dict[str, Any] = {
        "schema_version": 1,
        "panel": {
            "name": evaluation.panel,
            "hash": evaluation.panel_hash,
            "data": evaluation.data,
            "settings": asdict(evaluation.settings),
        },
        "model": asdict(evaluation.model),
        "versions": asdict(evaluation.versions),
        "correct": {"part": evaluation.part, "at_least": evaluation.at_least},
        "summary": asdict(evaluation.summary),
        "greedy": None if evaluation.greedy is None else asdict(evaluation.greedy),
        "engine": evaluation.engine,
        "dtype": evaluation.dtype,
    }
    described: dict[str, Any] = plain(values)
    return described


def _summary(values: Mapping[str, Any]) -> Summary:
    def estimates(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
        return {name: Estimate(**entry) for name, entry in entries.items()}

    return Summary(
        metrics=estimates(values["metrics"]),
        sources={source: estimates(entries) for source, entries in values["sources"].items()},
        num_prompts=values["num_prompts"],
        num_responses=values["num_responses"],
        missing=values["missing"],
    )
