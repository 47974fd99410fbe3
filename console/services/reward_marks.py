"""Agreement of the rewards that answers were given with people's marks of them: nothing is scored anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from console.services.kept_reads import KeptReads
from mmrl.errors import MmrlError
from mmrl.evaluation.finding import all_evaluations
from mmrl.evaluation.majority import most_chosen
from mmrl.evaluation.reward_agreement import Judged, OrderAgreement, order_agreement
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.marks import Answer, Choice, Mark
from mmrl.jobs.records import local_path
from mmrl.runs.decoding import read_groups
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord, ResponseRecord

TOTAL = "total"


_Scores = Mapping[tuple[str | None, str, int], Mapping[str, float | None]]
"""Rewards by name, of the response that has a group's number (None in an evaluation), a prompt and a number in it."""
_SCORES: KeptReads[_Scores] = KeptReads(32_000_000)


@dataclass(frozen=True)
class MarkedPair:
    """Two answers and the choices that people made between them, one of each person."""

    prompt_id: str
    a: Answer
    b: Answer
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class MarkedRewards:
    """num_pairs: that people judged. num_unknown: pairs of them with an answer that is gone or was never scored, as in
    a chat. agreements: the total first, then each part by name."""

    num_pairs: int
    num_unknown: int
    num_people: int
    agreements: tuple[OrderAgreement, ...]


def marked_rewards(marks: Sequence[Mark], jobs: JobReads) -> MarkedRewards:
    """What all marks together say of each reward."""
    pairs = marked_pairs(marks)
    if not pairs:
        return MarkedRewards(0, 0, 0, ())
    values = _Values(jobs)
    known = [(pair, values.of(pair.prompt_id, pair.a), values.of(pair.prompt_id, pair.b)) for pair in pairs]
    scored = [(pair, a, b) for pair, a, b in known if a and b]
    names = dict.fromkeys(name for _, a, b in scored for name in (*a, *b))
    agreements = tuple(
        order_agreement(
            name,
            [
                Judged(pair.prompt_id, most_chosen(pair.choices), a.get(name), b.get(name))
                for pair, a, b in scored
                if name in {*a, *b}
            ],
        )
        for name in sorted(names, key=lambda name: (name != TOTAL, name))
    )
    return MarkedRewards(len(pairs), len(pairs) - len(scored), len({mark.user_id for mark in marks}), agreements)


def marked_pairs(marks: Iterable[Mark]) -> list[MarkedPair]:
    """Each two answers that somebody judged, a ranking as all of its pairs. Who judged the same two more than once, as
    a pair and in a ranking, has one vote: the last."""
    found: dict[tuple[str, Answer, Answer], dict[str, Choice]] = defaultdict(dict)
    for mark in sorted(marks, key=lambda mark: mark.id):
        for a, b, choice in mark.choices():
            found[mark.prompt_id, a, b][mark.user_id] = choice
    return [MarkedPair(*key, tuple(choices.values())) for key, choices in found.items()]


class _Values:
    """The rewards of answers, by name. An evaluation, or a run's step with all of its groups, is read once."""

    def __init__(self, jobs: JobReads) -> None:
        self._jobs = jobs
        self._evaluations = {evaluation.id: evaluation for evaluation in all_evaluations()}
        self._found: dict[str, _Scores] = {}

    def of(self, prompt_id: str, answer: Answer) -> Mapping[str, float | None]:
        """Empty where the answer is gone, or was not scored."""
        if answer.source in self._evaluations:
            where, group_id = answer.source, None
        else:
            where, _, group_id = answer.source.rpartition("/")
        if where not in self._found:
            self._found[where] = self._read(where)
        return self._found[where].get((group_id, prompt_id, answer.sample_idx), {})

    def _read(self, where: str) -> _Scores:
        """where: an evaluation's id, or JOB/SPLIT/STEP. Empty where that is nothing, or its files are gone or bad."""
        try:
            if where in self._evaluations:
                evaluation = self._evaluations[where]
                return _SCORES.get(str(evaluation.folder), lambda: _scores(evaluation.groups()), _num_bytes)
            job_id, split, step = where.split("/")
            folder = local_path(self._jobs.get(job_id).run_dir)
            if folder is None:
                return {}
            path = RunReader(folder).sample_files()[split, int(step)]
            key = (str(path), path.stat().st_mtime_ns)
            return _SCORES.get(key, lambda: _scores(read_groups(path, with_tokens=False), by_group=True), _num_bytes)
        except (MmrlError, OSError, ValueError, KeyError, TypeError):
            return {}


def _scores(groups: Iterable[GroupRecord], *, by_group: bool = False) -> _Scores:
    return {
        (str(group.group_id) if by_group else None, group.prompt_id, response.sample_idx): _rewards(response)
        for group in groups
        for response in group.responses
    }


def _num_bytes(scores: _Scores) -> int:
    return sum(500 + 100 * len(rewards) for rewards in scores.values())


def _rewards(response: ResponseRecord) -> dict[str, float | None]:
    if not response.parts:
        return {}
    return {TOTAL: response.reward, **{part.name: part.value for part in response.parts}}
