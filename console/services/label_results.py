"""What came of people's marks: how far they agree, on which items they do not, and whose answers most prefer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from console.services.label_drawing import Item
from mmrl.evaluation.agreement import Agreement, alpha_with_interval, kappa_with_interval
from mmrl.evaluation.intervals import wilson
from mmrl.evaluation.majority import most_chosen
from mmrl.jobs.marks import Answer, Choice, Mark

Unit = tuple[str, Answer, Answer]
"""Two answers of an item. A ranking has as many units as pairs of answers; they count as one thing judged."""
FEW = 20
"""Below so many things judged by two, their agreement is told with a warning."""


@dataclass(frozen=True)
class AgreementReport:
    """kappas: Cohen's kappa of each two people on what both judged. alpha: Krippendorff's, of all."""

    kappas: tuple[tuple[str, str, Agreement], ...]
    alpha: Agreement


@dataclass(frozen=True)
class Disagreement:
    """An item with the marks of those who judged it. num_divided: pairs of its answers that they order differently."""

    item: Item
    marks: tuple[Mark, ...]
    num_divided: int


@dataclass(frozen=True)
class Standing:
    """How one maker's answers fared against all others', by what most people chose. num_prompts: with an answer that
    won or lost. low, high: 95 % interval (Wilson over these prompts: pairs of one prompt are no independent draws) of
    the share that was won among those won or lost; None without any."""

    by: str
    wins: int
    losses: int
    ties: int
    all_bad: int
    divided: int
    num_prompts: int
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PersonCounts:
    """What one person chose, over items. num_left: pairs of which they took the left answer, of num_sided in which they
    took a side that was drawn, so not in a chat; far from a half, sides may have drawn them. seconds: median time to a
    choice; None where unknown."""

    user_id: str
    num_judged: int
    num_preferred: int
    num_ties: int
    num_all_bad: int
    num_left: int
    num_sided: int
    seconds: float | None


def agreement_of(marks: Iterable[Mark]) -> AgreementReport:
    units = choices_by_unit(marks)
    by_user: dict[str, dict[Unit, str]] = defaultdict(dict)
    for unit, choices in units.items():
        for user, choice in choices.items():
            by_user[user][unit] = choice
    kappas = []
    for one, other in combinations(sorted(by_user), 2):
        shared = sorted(by_user[one].keys() & by_user[other].keys())
        if shared:
            ones, others = ([by_user[user][unit] for unit in shared] for user in (one, other))
            num = len({item for item, _, _ in shared})
            kappas.append((one, other, kappa_with_interval(ones, others, num=num)))
    shared_items = {item for (item, _, _), choices in units.items() if len(choices) > 1}
    judgements = {str(unit): dict(choices) for unit, choices in units.items()}
    return AgreementReport(tuple(kappas), alpha_with_interval(judgements, num=len(shared_items)))


def choices_by_unit(marks: Iterable[Mark]) -> dict[Unit, dict[str, Choice]]:
    """Of each two answers, each person's choice."""
    found: dict[Unit, dict[str, Choice]] = defaultdict(dict)
    for mark in marks:
        for one, other, choice in mark.choices():
            found[mark.item, one, other][mark.user_id] = choice
    return dict(found)


def disagreements(items: Iterable[Item], marks: Iterable[Mark]) -> list[Disagreement]:
    """Items that two or more judged and not alike, those with most divided pairs first."""
    marks = list(marks)
    divided = Counter(unit[0] for unit, choices in choices_by_unit(marks).items() if len(set(choices.values())) > 1)
    by_item: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        by_item[mark.item].append(mark)
    found = [Disagreement(item, tuple(by_item[item.key]), divided[item.key]) for item in items if divided[item.key] > 0]
    return sorted(found, key=lambda each: -each.num_divided)


def standings(items: Iterable[Item], marks: Iterable[Mark]) -> list[Standing]:
    """Of each maker of answers, the most preferred first; answers of one maker are not compared with each other."""
    known = {item.key: item for item in items}
    makers = {candidate.answer: candidate.by for item in known.values() for candidate in item.candidates}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    prompts: dict[str, set[str]] = defaultdict(set)
    for (key, one, other), choices in choices_by_unit(marks).items():
        by = makers.get(one), makers.get(other)
        if key not in known or None in by or by[0] == by[1]:
            continue
        most = most_chosen(choices.values())
        for maker, side in zip(map(str, by), ("a", "b"), strict=True):
            counts[maker]["wins" if most == side else "losses" if most in ("a", "b") else most] += 1
            if most in ("a", "b"):
                prompts[maker].add(known[key].prompt.id)
    found = [_standing(by, own, len(prompts[by])) for by, own in counts.items()]
    return sorted(found, key=lambda each: (each.losses - each.wins, each.by))


def counts_of_people(marks: Iterable[Mark]) -> list[PersonCounts]:
    """Of each person who judged anything, the busiest first."""
    by_user: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        by_user[mark.user_id].append(mark)
    found = [_counts_of(user, own) for user, own in by_user.items()]
    return sorted(found, key=lambda each: (-each.num_judged, each.user_id))


def _counts_of(user_id: str, marks: Sequence[Mark]) -> PersonCounts:
    all_bad = sum(mark.all_bad for mark in marks)
    ties = sum(not mark.all_bad and len(set(mark.ranks)) == 1 for mark in marks)
    sided = [mark for mark in marks if mark.choice in ("a", "b") and mark.shown]
    seconds = [mark.seconds for mark in marks if mark.seconds is not None]
    return PersonCounts(
        user_id,
        num_judged=len(marks),
        num_preferred=len(marks) - all_bad - ties,
        num_ties=ties,
        num_all_bad=all_bad,
        num_left=sum(mark.shown[0] == (0 if mark.choice == "a" else 1) for mark in sided),
        num_sided=len(sided),
        seconds=median(seconds) if seconds else None,
    )


def _standing(by: str, counts: Mapping[str, int], num_prompts: int) -> Standing:
    wins, losses = counts.get("wins", 0), counts.get("losses", 0)
    low, high = wilson(wins / (wins + losses) * num_prompts, num_prompts) if num_prompts else (None, None)
    ties, all_bad, divided = (counts.get(word, 0) for word in ("tie", "both_bad", "divided"))
    return Standing(by, wins, losses, ties, all_bad, divided, num_prompts, low, high)
