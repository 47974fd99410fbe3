"""What came of people's marks, as records to take along: who won, how far people agree, what each of them chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from console.services.exports import Export, Record
from console.services.label_results import AgreementReport, PersonCounts, Standing
from mmrl.data.serialise import canonical


def export_results(
    about: str,
    standings: Sequence[Standing],
    report: AgreementReport,
    people: Sequence[PersonCounts],
    names: Mapping[str, str],
) -> Export:
    """A row for each maker of answers, each agreement, and each person; `table` tells which. Intervals are at 95 %.

    names: of people by id, or what stands for them.
    """
    rows = [*map(_of_standing, standings), *_of_agreement(report, names), *(_of_person(each, names) for each in people)]
    sections = {"result": "Whose answers are preferred", "agreement": "Agreement", "person": "People"}
    return Export(
        name="label-results",
        title=f"What came of marks of {about}",
        records=lambda: [Record(row, sections[row["table"]]) for row in rows],
        total=len(rows),
        about={
            "answers of": about,
            "intervals": "95 %, Wilson's: of shares over prompts, of agreement over the items judged",
        },
        content=canonical(rows),
    )


def _of_standing(each: Standing) -> dict[str, Any]:
    decided = each.wins + each.losses
    return {
        "table": "result",
        "of": each.by,
        "wins": each.wins,
        "losses": each.losses,
        "ties": each.ties,
        "all_bad": each.all_bad,
        "divided": each.divided,
        "value": each.wins / decided if decided else None,
        "low": each.low,
        "high": each.high,
        "num": each.num_prompts,
    }


def _of_agreement(report: AgreementReport, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    found = [
        (f"{names.get(one, one)} and {names.get(other, other)}", "Cohen's kappa", kappa)
        for one, other, kappa in report.kappas
    ]
    if report.alpha.num:
        found.append(("all", "Krippendorff's alpha", report.alpha))
    for who, measure, each in found:
        values = {"value": each.value, "low": each.low, "high": each.high, "num": each.num}
        yield {"table": "agreement", "of": who, "measure": measure, **values}


def _of_person(each: PersonCounts, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "table": "person",
        "of": names.get(each.user_id, each.user_id),
        "judged": each.num_judged,
        "preferred": each.num_preferred,
        "ties": each.num_ties,
        "all_bad": each.num_all_bad,
        "chose_left": each.num_left,
        "of_sided": each.num_sided,
        "seconds_median": each.seconds,
    }
