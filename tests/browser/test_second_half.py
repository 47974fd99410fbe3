"""From a finished run to one that people's marks made better, in a real browser and with real training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from digits_site import Digits, finished, finished_run
from homes import Home
from looking import settle
from playwright.sync_api import Locator, Page, expect

from mmrl.evaluation.finding import all_evaluations
from mmrl.evaluation.records import Evaluation
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.marks import Marks
from mmrl.jobs.records import Job
from mmrl.jobs.users import Users
from mmrl.runs.reader import RunReader

Consoles = Callable[..., Any]
Pages = Callable[..., Page]
Shoot = Callable[[Page, str], list[Path]]
NUM = 10
PASSWORD = "correct horse battery"
JOB_MS = 240_000
"""For a job that a worker has to take, start and finish."""
QUICK = {
    "MMRL_CONSOLE_PASSWORD": PASSWORD,
    "MMRL_JOBS_BEAT_S": "0.5",
    "MMRL_JOBS_LEASE_S": "60",
    "OMP_NUM_THREADS": "1",
}


def test_from_a_finished_run_over_marks_of_two_people_to_a_run_that_learned_from_them(
    start_console: Consoles, open_page: Pages, shoot: Shoot
) -> None:
    console, home = start_console("empty", "--worker", environment=QUICK)
    run = finished_run(home)
    ann = _signed_in(open_page(console, f"/run?id={run.id}&tab=samples", settles=False), PASSWORD)
    ben = _signed_in(open_page(console, "/label", settles=False), _token(home, "Ben"))
    _read_a_group(ann, run)
    _find_odd_ones(ann, run)
    _compare_step_0_with_the_best(ann, run)
    with home.active():
        before, after = _evaluated()
        digits = Digits.of_home()
    asked = {"ids": f"{before.id},{after.id}", "num": str(NUM), "only": "differ"}
    for page, num_wrong in ((ann, 0), (ben, 2)):
        page.goto(f"/label?{urlencode(asked)}")
        _judge_by_keyboard(page, digits, num_wrong=num_wrong)
    _see_agreement(ann, home, before.panel_hash)
    shoot(ann, "label-agreement")
    _export(ann)
    dpo = _train_on_them(ann, home)
    _rises(ann, home, dpo)
    _is_no_worse(ann, home, dpo, after)
    _chat_with_both(ann, run, best=after.model.step)
    shoot(ann, "playground-answered")


def _read_a_group(page: Page, run: Job) -> None:
    page.get_by_role("link", name="Read them all").click()
    expect(page).to_have_url(re.compile(r"/responses\?run="))
    settle(page)
    expect(page.get_by_text("reward").first).to_be_visible()
    page.goto(f"/responses?run={run.id}&step=1&tokens=logprob")
    settle(page)
    expect(page.get_by_text("exact").first).to_be_visible()
    expect(page.locator("[data-testid=stHtml] span[title^='−']").first).to_be_visible()


def _find_odd_ones(page: Page, run: Job) -> None:
    """Both kinds are there at some step, and the page finds as many as the files have."""
    for only, words in (("truncated", "cut at the limit"), ("disagree", None)):
        step, num = _odd(run, only)
        page.goto(f"/responses?run={run.id}&step={step}&only={only}")
        settle(page)
        expect(page.get_by_text(re.compile(rf"^{num} of \d+ groups of this step"))).to_be_visible()
        if words is not None:
            expect(page.get_by_text(words).first).to_be_visible()


def _odd(run: Job, only: str) -> tuple[int, int]:
    """The first step that has such groups, and how many; told from the samples themselves."""
    reader = RunReader(Path(str(run.run_dir)))
    for step in reader.steps("train"):
        groups = reader.sample_groups(step, "train", with_tokens=False)
        num = sum(any(each.is_truncated for each in group.responses) for group in groups)
        if only == "disagree":
            num = sum(_opposed(group.responses) for group in groups)
        if num:
            return step, num
    raise AssertionError(f"the run has no group that is {only}")


def _opposed(responses: Any) -> bool:
    """Whether a right answer in a wrong form stands beside a wrong one in the right form."""
    values = [tuple(part.value for part in each.parts) for each in responses]
    return any(one[0] > two[0] and one[1] < two[1] for one in values for two in values)


def _compare_step_0_with_the_best(page: Page, run: Job) -> None:
    """Neither has answered: both are asked on the page, and appear there."""
    page.goto(f"/compare?run={run.id}")
    settle(page)
    _button(page, "ask-submit").click()
    expect(page.get_by_text("newly solved").first).to_be_visible(timeout=JOB_MS)
    settle(page)


def _evaluated() -> list[Evaluation]:
    """Step 0, which is the model of the warm start, and the best checkpoint."""
    return sorted(all_evaluations(), key=_accuracy)


def _accuracy(evaluation: Evaluation) -> float:
    return evaluation.summary.metrics["accuracy"].value


def _judge_by_keyboard(page: Page, digits: Digits, *, num_wrong: int) -> None:
    """Looks at each image and takes the answer that names its digit; wrongly at first, if told so. No mouse."""
    for place in range(NUM):
        expect(page.get_by_text(f"{place} of {NUM} judged")).to_be_visible()
        settle(page)
        image = page.get_by_role("img", name="image 1 of the prompt")
        digit = digits.look(page.request.get(str(image.get_attribute("src"))).body())
        is_left = f"boxed{{{digit}}}" in page.locator(".st-key-label-answer-left").inner_text()
        assert is_left != (f"boxed{{{digit}}}" in page.locator(".st-key-label-answer-right").inner_text())
        page.keyboard.press("1" if is_left == (place >= num_wrong) else "2")
    expect(page.get_by_text("All judged")).to_be_visible()


def _see_agreement(page: Page, home: Home, panel: str) -> None:
    """The same number as scikit-learn's; eight of ten alike, and two divided."""
    from sklearn.metrics import cohen_kappa_score

    with home.active(), Database.open() as database:
        marks = Marks(database, Users(database).local()).of_source(panel)
    choices: dict[str, dict[str, str]] = {}
    for mark in marks:
        choices.setdefault(mark.user_id, {})[mark.item] = str(mark.choice)
    one, other = choices.values()
    assert sorted(one) == sorted(other), "both judged the same"
    assert {mark.shown for mark in marks} == {(0, 1), (1, 0)}, "sides are drawn, and recorded"
    kappa = cohen_kappa_score([one[item] for item in sorted(one)], [other[item] for item in sorted(one)])
    page.reload()
    settle(page)
    page.keyboard.press("v")
    cells = page.get_by_role("row", name=re.compile("Cohen’s kappa")).get_by_role("cell")
    expect(cells.nth(3)).to_have_text(str(NUM))
    assert float(cells.nth(1).inner_text().replace("−", "-")) == pytest.approx(kappa, abs=5e-3)
    expect(page.get_by_text("Divided over 2")).to_be_visible()
    for word, place in (("j", 2), ("k", 1)):
        settle(page)
        page.keyboard.press(word)
        expect(page.get_by_text(f"{place} of 2")).to_be_visible()


def _export(page: Page) -> None:
    """Every mark with person, side and answers."""
    _button(page, "label-export").first.click()
    page.get_by_role("radio", name="JSONL").click()
    _button(page, "label-export-make").click()
    with page.expect_download() as download:
        _button(page, "label-export-download").click()
    rows = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert len(rows) == 2 * NUM
    assert {row["person"] for row in rows} == {"person 1", "person 2"}
    assert {row["choice"] for row in rows} == {"left", "right"}
    page.keyboard.press("Escape")


def _train_on_them(page: Page, home: Home) -> str:
    """From the button to a launched run, without touching a setting. Gives its id."""
    page.get_by_role("button", name="Make the data set").click()
    expect(page.get_by_text(f"marks: {NUM - 2} pairs")).to_be_visible()
    page.get_by_role("link", name="New run: DPO on them").click()
    launch = _button(page, "launch")
    expect(launch).to_be_enabled()
    settle(page)
    launch.click()
    expect(page).to_have_url(re.compile(r"/run\?id="))
    return str(re.search(r"id=([0-9a-f-]+)", page.url)[1])  # type: ignore[index]


def _rises(page: Page, home: Home, dpo: str) -> None:
    """The reward margin of the pairs goes up, in the database and on the run's page."""
    with home.active(), Database.open() as database:
        jobs = Jobs(database)
        job = finished(jobs, jobs.get(dpo))
        margins = [value for _, value in _values(Path(str(job.run_dir)), "rewards/margins")]
    assert abs(margins[0]) < 1e-3, "at first the policy is the reference"
    assert margins[-1] > 0.01
    assert margins == sorted(margins)
    page.goto(f"/run?id={dpo}&metric=rewards/margins,rewards/accuracies")
    expect(_key(page, "chart-rewards-margins")).to_contain_text(re.compile(r"at step \d"))


def _values(run_dir: Path, name: str) -> list[tuple[int, float]]:
    rows = RunReader(run_dir).metrics([name])
    return [(row.step, value) for row in rows if (value := row.values[name]) is not None]


def _is_no_worse(page: Page, home: Home, dpo: str, base: Evaluation) -> None:
    """Asked the same panel on the page Compare. Of 100 prompts three more wrong ones are allowed: two pairs in ten are
    learned by what chance decides."""
    page.goto(f"/compare?run={dpo}")
    settle(page)
    _key(page, "ask-more").locator("summary").click()
    _button(page, "ask-submit").click()
    with home.active(), Database.open() as database:
        expect(page.get_by_text("Answers that are being made")).to_be_visible()
        jobs = Jobs(database)
        finished(jobs, max(jobs.list(), key=lambda job: job.id))
        (made,) = (each for each in all_evaluations() if each.model.run and dpo[-8:] in each.model.run)
    assert made.panel_hash == base.panel_hash
    assert _accuracy(made) >= _accuracy(base) - 0.03


def _chat_with_both(page: Page, run: Job, *, best: int) -> None:
    """Step 0 and the best checkpoint, each served by real vLLM, answer one question side by side; then both stop."""
    page.goto(f"/playground?run={run.id}&steps=0,{best}&max_tokens=7&temperature=0.5&seed=3")
    _button(page, "start-all").click()
    question = page.get_by_placeholder("Ask all 2 checkpoints")
    expect(question).to_be_enabled(timeout=JOB_MS)
    settle(page)
    question.fill("Which digit is this? Answer in \\boxed{}.")
    question.press("Enter")
    answered = re.compile(r"(ended by itself|cut at the limit) · \d+ tokens")
    for place in (0, 1):
        expect(_key(page, f"reply-0-{place}")).to_contain_text(answered, timeout=JOB_MS)
    page.reload()
    for place in (0, 1):
        expect(_key(page, f"reply-0-{place}")).to_contain_text(answered)
    settle(page)
    for place in (0, 1):
        _button(page, f"stop-{place}").click()
        expect(_button(page, f"start-{place}")).to_be_visible(timeout=JOB_MS)
        settle(page)


def _key(page: Page, name: str) -> Locator:
    return page.locator(f".st-key-{name}")


def _button(page: Page, name: str) -> Locator:
    return _key(page, name).get_by_role("button")


def _signed_in(page: Page, secret: str) -> Page:
    page.get_by_label("Password or access token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("[data-testid=stMain]")).to_be_visible()
    settle(page)
    return page


def _token(home: Home, name: str) -> str:
    with home.active(), Database.open() as database:
        users = Users(database)
        text, _ = users.create_token(users.add(name, role="member").id, "browser", scopes=["read", "label"])
    return text
