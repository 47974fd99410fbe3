"""The page Rewards without a browser: every part in every home, tried on rows, rescored, and beside people's marks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from homes import KINDS, NASTY, Home

from console.services.reward_notes import reward_notes
from mmrl.config.loading import build_config
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Answer, Marks
from mmrl.jobs.users import Users

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]


def _texts(test: Any) -> str:
    """Without the escapes that keep Markdown away."""
    told = "\n".join(element.value for kind in ("text", "markdown", "caption", "code") for element in test.get(kind))
    return told.replace("\\", "").replace("\u2060", "")


def _until_over(test: Any, key: str) -> Any:
    """The command of a part runs beside the page, which looks again by itself in a browser."""
    end = time.monotonic() + 120
    while any(button.key == key for button in test.button):
        assert time.monotonic() < end, _texts(test)
        time.sleep(0.2)
        test.run()
    return test


def _exported(test: Any, key: str) -> list[dict[str, Any]]:
    """The rows of what an Export button makes."""
    test.button_group(key=f"{key}-kind").set_value("jsonl").run()
    test.button(key=f"{key}-make").click().run()
    return [json.loads(line) for line in test.session_state["export-made"][1].data.splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_is_whole_in_every_home(shared_home: Homes, run_page: RunPage, kind: str) -> None:
    home = shared_home(kind)
    test = run_page("rewards", home, name="iou")
    assert not test.exception
    assert test.subheader[0].value == "iou"
    for view in ("own", "try", "rescore", "people"):
        test.query_params.update({"view": view, "run": next(iter(home.jobs.values()), "none")})
        test.run()
        assert not test.exception, view
        told = _texts(test)
        assert "Cannot show" not in told or "holds no attempt" in told or kind == "broken", (view, told)


def test_every_reward_is_explained_with_a_formula_and_an_example_that_a_config_takes() -> None:
    import yaml

    for name, note in reward_notes().items():
        assert note.pays, name
        assert note.formula, name
        assert note.value, name
        config = {"name": "a", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [yaml.safe_load(note.example)]}
        assert build_config(config, source=name).run_config.reward[0].type == name
    assert reward_notes()["math"].manual.startswith("**math** takes an answer apart")
    assert "0.333333" in reward_notes()["math"].manual
    assert "**number**" not in reward_notes()["math"].manual


def test_rewards_are_tried_on_rows_and_what_was_typed_is_still_there(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("rewards", home, view="try")
    test.text_area(key="rewards-try").set_value("- {type: exact}\n- {type: format, weight: 0.5}\n").run()
    test.number_input(key="try-rows").set_value(2).run()
    test.button(key="try-start").click().run()
    _until_over(test, "stop-try")
    assert not test.exception
    assert "2 rows of shapes@train" in _texts(test)
    assert "reference in a box" in _texts(test)
    rows = _exported(test, "try-export")
    boxed = [row for row in rows if row["answered_with"] == "reference in a box"]
    assert len({row["row"] for row in rows}) == len(boxed) == 2
    assert [(row["part exact"], row["part format"], row["total"]) for row in boxed] == [(1.0, 1.0, 1.5)] * 2
    again = run_page("rewards", home, view="try")
    assert again.text_area(key="rewards-try").value.startswith("- {type: exact}")
    test.text_area(key="rewards-try").set_value("- {type: exat}").run()
    test.button(key="try-start").click().run()
    assert "exact" in _texts(test), "what is meant is told"
    assert "of other settings" in _texts(test)


def test_a_runs_responses_are_scored_anew_and_lead_to_the_page_of_each(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    run = home.jobs["running"]
    test = run_page("rewards", home, view="rescore", run=run)
    assert not test.exception
    area = test.text_area(key=f"rewards-rescore-{run}")
    assert "type: exact" in area.value or "type: math" in area.value
    area.set_value("- {type: format, pattern: '.*green.*'}\n").run()
    test.button(key="rescore-start").click().run()
    _until_over(test, "stop-rescore")
    assert not test.exception
    assert "Rank correlation" in [metric.label for metric in test.metric]
    assert "Responses that moved most" in [each.value for each in test.subheader]
    rows = test.table[0].value.set_index("Value")
    assert rows.loc["exact", ["Missing before", "Missing after"]].tolist() == ["0", "not asked"]
    assert rows.loc["format", ["Missing before", "Missing after"]].tolist() == ["0", "0"]
    assert "more with this very text moved alike." in _texts(test)
    test.button_group(key="rescore-export-kind").set_value("jsonl").run()
    test.button(key="rescore-export-make").click().run()
    made = [json.loads(line) for line in test.session_state["export-made"][1].data.splitlines()]
    first = made[0]
    assert (first["split"], first["exact before"], first["format after"], first["total after"]) == (
        "train",
        1.0,
        0.0,
        0.0,
    )
    assert first["response"].startswith("The shape is")
    test.select_slider(key="rescore-steps-train").set_range(20, 40).run()
    assert test.query_params["steps"] == "20-40"
    again = run_page("rewards", home, view="rescore", run=run, steps="20-40", split="eval")
    assert not again.exception
    assert again.selectbox(key="rescore-split").value == "eval"
    other = run_page("rewards", home, view="rescore", run=run, steps="20-40")
    assert tuple(other.select_slider(key="rescore-steps-train").value) == (20, 40)
    assert not run_page("rewards", home, view="rescore", run=run, steps="x-9", split="gone").exception


def test_code_of_ones_own_is_for_who_may_run_it(fresh_home: Homes, run_page: RunPage) -> None:
    from console.services.processes import Processes
    from console.services.reward_work import RewardWork
    from mmrl.jobs.errors import ForbiddenError

    home = fresh_home("small")
    with Database.open() as database:
        member = Users(database).get(home.users["member"])
        viewer = Users(database).get(home.users["viewer"])
        settings = database.settings
    work = RewardWork(Processes(home.path / "p"), member, settings)
    with pytest.raises(ForbiddenError, match="code"):
        work.start_try("- {type: function, path: /x.py, name: score}", "shapes@train", 2)
    with pytest.raises(ForbiddenError, match="code"):
        work.start_people("- {type: gate, condition: {type: format}, reward: {type: function, path: /x.py}}", "shapes")
    with pytest.raises(ForbiddenError):
        RewardWork(Processes(home.path / "p"), viewer, settings).keep("try", "- {type: math}")
    test = run_page("rewards", home, view="own")
    test.text_input(key="bring-name").set_value("mine")
    test.button(key="FormSubmitter:bring-reward-Keep it").click().run()
    assert not test.exception
    assert "**mine**" in _texts(test)
    assert "short (default 50)" in _texts(test)
    test.button(key="try-mine").click().run()
    assert test.query_params["view"] == "try"
    assert "type: function" in test.text_area(key="rewards-try").value


def test_rewards_stand_beside_peoples_marks(fresh_home: Homes, run_page: RunPage) -> None:
    """Of step 60, group 1: the first response has 1.2 and the others 0.2. They tell as much as one prompt does."""
    home = fresh_home("small")
    run = home.jobs["running"]
    source = f"{run}/train/60/1"
    from mmrl.jobs.jobs import Jobs
    from mmrl.runs.reader import RunReader

    with Database.open() as database:
        from pathlib import Path

        groups = RunReader(Path(Jobs(database).get(run).run_dir)).sample_groups(60, "train")
        group = next(each for each in groups if each.group_id == 1)
        best = group.by_reward[0].sample_idx
        others = [each.sample_idx for each in group.by_reward[1:]]
        marks = Marks(database, Users(database).local())
        for place, ranks in zip(others, ((1, 2), (1, 2), (2, 1)), strict=True):
            answers = (Answer(source, best), Answer(source, place))
            marks.add(f"run:{run}", group.prompt_id, answers, ranks=ranks, reason=NASTY)
        marks.add(f"run:{run}", group.prompt_id, (Answer(source, others[0]), Answer(source, others[1])), ranks=(1, 2))
        gone = (Answer("no-evaluation", 0), Answer("no-evaluation", 1))
        marks.add("panel", "p", gone, ranks=(1, 2))
    test = run_page("rewards", home, view="people")
    assert not test.exception
    assert "5 pairs, judged by 1 person; 1 of them were never scored." in _texts(test)
    rows = test.table[0].value
    total = rows[rows["Reward"] == "total"].iloc[0]
    assert (total["Agrees"], total["Disagrees"], total["Same value"]) == ("2", "1", "1")
    exported = _exported(test, "people-export")
    assert [row["reward"] for row in exported][:2] == ["total", "exact"]
    assert (exported[0]["agrees"], exported[0]["low"]) == (2, pytest.approx(0.0942, abs=1e-4))
    # Wilson for 2 of 3: middle (2/3 + 3.841459/6) / 2.280486 = 0.573083, half 0.365305
    assert (total["Share that agrees"], total["95 % interval"]) == ("0.667", "0.0942 to 0.975")
