"""Panels are frozen, evaluations are kept, and what keeps two of them from being compared is said."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from evaluation_builders import SETTINGS, VERSIONS, evaluated
from PIL import Image
from pydantic import TypeAdapter

from mmrl.config.evaluation import AnswerConfig
from mmrl.config.reward import RewardConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ConflictError, DataError, NotFoundError
from mmrl.evaluation.comparison import compare_evaluations
from mmrl.evaluation.finding import comparable, find_evaluations
from mmrl.evaluation.panels import Panel, PanelSettings, panel_names, panel_of, read_panel, save_panel
from mmrl.evaluation.records import evaluations_in, read_evaluation
from mmrl.evaluation.versions import rewards_version
from mmrl.types import (
    ImagePart,
    Message,
    Sample,
    TextPart,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def samples() -> list[Sample]:
    image = ImageStore().add(Image.new("RGB", (12, 8), (9, 0, 0)))
    content = (ImagePart(image), TextPart("Which digit?"))
    meta = {"source": "digits"}
    return [
        Sample("s1", (Message("user", content),), "7", meta),
        Sample("s2", (Message("user", (TextPart("And now?"),)),), "3", meta),
    ]


def test_a_panel_is_read_back_as_it_was(samples: list[Sample]) -> None:
    panel = panel_of(samples, SETTINGS, name="digits", data="digits@test")
    save_panel(panel, ImageStore())
    again = read_panel("digits")
    assert (again, again.hash) == (panel, panel.hash)
    assert panel_names() == ["digits"]
    save_panel(panel, ImageStore())


def test_a_panel_without_a_name_is_named_by_its_hash_which_prompts_and_settings_decide(samples: list[Sample]) -> None:
    panel = panel_of(samples, SETTINGS)
    assert panel.name == panel.hash
    assert panel_of(samples, SETTINGS, name="other").hash == panel.hash
    assert panel_of(samples[:1], SETTINGS).hash != panel.hash
    assert panel_of(samples, replace(SETTINGS, seed=1)).hash != panel.hash


def test_a_panel_never_changes(samples: list[Sample], home: Path) -> None:
    save_panel(panel_of(samples, SETTINGS, name="digits"), ImageStore())
    with pytest.raises(ConflictError, match="a panel never changes: choose another name"):
        save_panel(panel_of(samples[:1], SETTINGS, name="digits"), ImageStore())
    file = home / "panels/digits/panel.json"
    file.write_text(file.read_text().replace('"max_response_tokens": 8', '"max_response_tokens": 9'))
    with pytest.raises(DataError, match="panel 'digits' was changed"):
        read_panel("digits")


def test_of_several_who_freeze_at_once_the_first_one_counts_and_no_panel_is_half_there(samples: list[Sample]) -> None:
    panels = [panel_of(own, SETTINGS, name="digits") for own in (samples, samples[:1])] * 4
    barrier = Barrier(len(panels))

    def save(panel: Panel) -> bool:
        barrier.wait()
        try:
            save_panel(panel, ImageStore())
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(len(panels)) as pool:
        kept = list(pool.map(save, panels))
    winner = read_panel("digits")
    assert kept == [panel.hash == winner.hash for panel in panels]


def test_the_images_of_a_panel_outlive_the_image_store(samples: list[Sample], tmp_path: Path) -> None:
    save_panel(panel_of(samples, SETTINGS, name="digits"), ImageStore())
    other = ImageStore(tmp_path / "new-store")
    panel = read_panel("digits", store=other)
    assert other.open(panel.samples[0].images[0]).size == (12, 8)


def test_what_is_missing_is_named(samples: list[Sample]) -> None:
    save_panel(panel_of(samples, SETTINGS, name="digits"), ImageStore())
    with pytest.raises(NotFoundError, match=r"no panel 'nothing' in .*; there are: digits"):
        read_panel("nothing")
    with pytest.raises(DataError, match=r"not a name for a panel: '\.\./up'"):
        read_panel("../up")
    with pytest.raises(DataError, match="at least one prompt"):
        panel_of([], SETTINGS)


def test_settings_come_from_a_config() -> None:
    answers = AnswerConfig(samples_per_prompt=4, temperature=0.7, top_p=0.9, greedy=True)
    settings = PanelSettings.of(answers, max_response_tokens=5, seed=3)
    assert (settings.ks, settings.top_p, settings.greedy, settings.seed) == ((1, 2, 4), 0.9, True, 3)


def test_an_evaluation_is_read_back_with_its_outcomes(samples: list[Sample], home: Path) -> None:
    panel = panel_of(samples, SETTINGS, name="digits")
    save_panel(panel, ImageStore())
    run = home / "runs" / "r"
    written = evaluated(panel, 100, ("7", "3"), ("3", "3"), run=run)
    again = read_evaluation(run / "evaluations" / written.id)
    assert again == written
    assert again.summary.metrics["accuracy"].value == 0.75
    assert [outcome.correct for outcome in again.outcomes()] == [(True, False), (True, True)]
    (group, _) = again.groups()
    assert [response.text for response in group.responses] == ["7", "3"]
    image = again.image(group.images[0].sha256)
    assert image is not None
    assert image.is_file()


def test_the_same_evaluation_again_is_the_same_folder(samples: list[Sample], home: Path) -> None:
    panel, run = panel_of(samples, SETTINGS, name="digits"), home / "runs" / "r"
    first = evaluated(panel, 100, ("7", "3"), ("3", "3"), run=run)
    again = evaluated(panel, 100, ("7", "3"), ("3", "3"), run=run)
    other = evaluated(panel, 100, ("7", "7"), ("3", "3"), run=run)
    assert first.id == again.id != other.id
    assert {each.id for each in evaluations_in(run)} == {first.id, other.id}


def test_two_evaluations_are_shown_side_by_side_and_tested(samples: list[Sample], home: Path) -> None:
    panel, run = panel_of(samples, SETTINGS, name="digits"), home / "runs" / "r"
    first = evaluated(panel, 100, ("3", "3"), ("3", "3"), run=run)
    second = evaluated(panel, 200, ("7", "7"), ("3", "3"), run=run)
    comparison = compare_evaluations([first, second], metrics=("accuracy", "pass@2"))
    assert comparison.flags == ((),)
    result = comparison.results[0]["accuracy"]
    assert (result.first, result.second, result.better, result.same) == (0.5, 1.0, 1, 1)
    row = comparison.rows[0]
    assert (row.prompt_id, row.answer) == ("s1", "7")
    assert [[response.text for response in own] for own in row.responses] == [["3", "3"], ["7", "7"]]


def test_what_differs_besides_the_weights_is_flagged(samples: list[Sample], home: Path) -> None:
    panel, run = panel_of(samples, SETTINGS, name="digits"), home / "runs" / "r"
    first = evaluated(panel, 100, ("3", "3"), ("3", "3"), run=run)
    changed = replace(VERSIONS, template="other", rewards="other")
    second = evaluated(panel, 200, ("7", "7"), ("3", "3"), run=run, versions=changed, engine="vllm", at_least=0.5)
    (flags,) = compare_evaluations([first, second]).flags
    assert flags == (
        "not the same: when a response is right (exact >= 1 and exact >= 0.5)",
        "not the same: the chat template",
        "not the same: the rewards, or code of theirs",
        "not the same: what sampled (hf in float32 and vllm in float32); ties may have fallen otherwise",
    )


def test_evaluations_of_one_panel_are_chosen_where_there_are_several(samples: list[Sample], home: Path) -> None:
    run = home / "runs" / "r"
    (run / "attempt-1").mkdir(parents=True)
    for step in (100, 200):
        folder = run / f"checkpoints/step-{step:06d}"
        (folder / "model").mkdir(parents=True)
        (folder / "manifest.json").write_text(f'{{"step": {step}, "files": {{}}}}')
    shared, other = panel_of(samples, SETTINGS, name="shared"), panel_of(samples[:1], SETTINGS, name="other")
    evaluated(shared, 100, ("3", "3"), ("3", "3"), run=run)
    evaluated(other, 100, ("3", "3"), run=run)
    evaluated(shared, 200, ("7", "3"), ("3", "3"), run=run)
    found = comparable(["r@100", "r@200"])
    assert [(each.panel, each.model.step) for each in found] == [("shared", 100), ("shared", 200)]
    with pytest.raises(NotFoundError, match="r@200 was not evaluated on panel 'other'"):
        comparable(["r@100", "r@200"], panel="other")
    assert find_evaluations(found[0].id)[0].id == found[0].id
    with pytest.raises(DataError, match="at least two evaluations"):
        compare_evaluations(found[:1])


def test_the_version_of_rewards_follows_their_settings_and_their_code(tmp_path: Path) -> None:
    adapter: TypeAdapter[RewardConfig] = TypeAdapter(RewardConfig)
    code = tmp_path / "judge.py"
    code.write_text("def score(response):\n    return 1.0\n")

    def version(**changes: object) -> str:
        return rewards_version([adapter.validate_python({"type": "function", "path": str(code), **changes})])

    first = version()
    assert version() == first != version(weight=2.0)
    code.write_text("def score(response):\n    return 0.0\n")
    assert version() != first
