"""Samples there and back through parquet, their images, and which groups keep their text."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from runs_builders import begin_run, group, sample, store_image

from mmrl.config.record import RecordConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ConflictError, DataError, NotFoundError
from mmrl.runs.reader import RunReader
from mmrl.runs.recording import choose_groups
from mmrl.runs.records import TokenRecord
from mmrl.types import RewardPart, RewardResult


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_group_comes_back_as_it_was_written(run_dir: Path, store: ImageStore) -> None:
    image = store_image(store)
    prompt = sample("Which \ud800 digit? 数字", images=[image, image])
    scored = group([("six", 0.0), ("seven\n\x1b[31m", 2.0), ("", None)], prompt=prompt, advantages=(-1.0, 1.0, None))
    known = [[TokenRecord(actor_logprobs=(-0.25, -0.5, -1.0)), TokenRecord(), TokenRecord()]]
    begin_run(run_dir).samples(7, "train", [scored], store_path=store.path, tokens=known)

    (record,) = RunReader(run_dir).sample_groups(7, "train")
    assert (record.attempt, record.split, record.step, record.group_id) == (1, "train", 7, 0)
    assert record.prompt is not None
    assert record.prompt[0].content[:2] == prompt.messages[0].content[:2]
    assert record.prompt[0].text == "Which \ud800 digit? 数字"
    assert record.images == (image, image)
    assert (record.answer, record.meta) == ("7", {"source": "test", "row": 3})
    assert (record.reward_mean, record.reward_std) == (1.0, pytest.approx(2**0.5))
    assert [response.text for response in record.responses] == ["six", "seven\n\x1b[31m", ""]
    assert [response.text for response in record.by_reward] == ["seven\n\x1b[31m", "six", ""]
    first, second, failed = record.responses
    assert (first.token_ids, first.response_mask, first.logprobs) == ((10, 11, 12), (1, 1, 1), (0.0, -0.5, -1.0))
    assert first.seed == 2**63
    assert first.tokens == TokenRecord(actor_logprobs=(-0.25, -0.5, -1.0))
    assert second.tokens == TokenRecord()
    assert second.parts == (RewardPart("exact", 1.0, 2.0, extracted="seven\n\x1b[31m", explanation="equal", ms=0.5),)
    assert (failed.reward, failed.advantage, failed.parts[0].value) == (None, None, None)
    assert failed.parts[0].error == "no answer found"


def test_what_was_not_computed_is_null_in_the_file(run_dir: Path, store: ImageStore) -> None:
    path = begin_run(run_dir).samples(1, "eval", [group([("a", None)])], store_path=store.path)
    assert path == run_dir / "attempt-1" / "samples" / "eval-000001.parquet"
    (row,) = pq.read_table(path).to_pylist()
    assert row["schema_version"] == 1
    for column in ("reward_total", "advantage", "group_mean", "group_std", "actor_logprobs", "entropy"):
        assert row[column] is None, column


def test_a_greedy_response_stands_beside_its_group_and_counts_in_no_mean(run_dir: Path, store: ImageStore) -> None:
    scored = group([("a", 1.0), ("b", 2.0)])
    greedy = replace(scored.group.rollouts[0], text="most likely", index=0)
    reward = RewardResult(9.0, (RewardPart("exact", 9.0, 1.0),))
    compared = replace(scored, group=replace(scored.group, greedy=greedy), greedy_reward=reward)
    begin_run(run_dir).samples(1, "train", [compared, group([("c", 0.0)])], store_path=store.path)
    first, second = RunReader(run_dir).sample_groups(1, "train")
    assert first.greedy is not None
    assert (first.greedy.text, first.greedy.reward, first.greedy.parts[0].value) == ("most likely", 9.0, 9.0)
    assert ([response.text for response in first.responses], first.reward_mean) == (["a", "b"], 1.5)
    assert second.greedy is None
    (summary,) = RunReader(run_dir).sample_summaries()
    assert (summary.num_responses, summary.reward_mean) == (3, 1.0)


def test_row_groups_are_small(run_dir: Path, store: ImageStore) -> None:
    groups = [group([(str(number), 1.0)] * 10) for number in range(20)]
    path = begin_run(run_dir).samples(1, "train", groups, store_path=store.path)
    assert path is not None
    assert pq.ParquetFile(path).num_row_groups == 4


def test_a_step_is_written_once(run_dir: Path, store: ImageStore) -> None:
    writer = begin_run(run_dir)
    path = writer.samples(1, "train", [group([("first", 1.0)])], store_path=store.path)
    assert path is not None
    before = path.read_bytes()
    with pytest.raises(ConflictError, match="never changed"):
        writer.samples(1, "train", [group([("second", 1.0)])], store_path=store.path)
    assert path.read_bytes() == before


def test_a_split_cannot_leave_the_folder(run_dir: Path, store: ImageStore) -> None:
    with pytest.raises(ValueError, match="lower-case"):
        begin_run(run_dir).samples(1, "../x", [group([("a", 1.0)])], store_path=store.path)


def test_images_are_linked_once_and_shared_by_attempts(run_dir: Path, store: ImageStore) -> None:
    image = store_image(store)
    for step in (1, 2):
        prompt = sample(images=[image, image])
        begin_run(run_dir, step=step - 1).samples(
            step, "train", [group([("a", 1.0)], prompt=prompt)], store_path=store.path
        )
    kept = RunReader(run_dir).image(image.sha256)
    assert kept == run_dir / "images" / image.sha256[:2] / f"{image.sha256}.png"
    assert os.path.samefile(kept, store.path(image))
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_images_are_copied_where_the_disk_allows_no_link(
    run_dir: Path, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    image = store_image(store)
    begin_run(run_dir).samples(1, "train", [group([("a", 1.0)], prompt=sample(images=[image]))], store_path=store.path)
    kept = RunReader(run_dir).image(image.sha256)
    assert kept is not None
    assert kept.read_bytes() == store.path(image).read_bytes()


def test_an_image_gone_from_the_store_costs_a_warning_only(run_dir: Path, store: ImageStore) -> None:
    image = store_image(store)
    store.path(image).unlink()
    writer = begin_run(run_dir)
    for step in (1, 2):
        writer.samples(step, "train", [group([("a", 1.0)], prompt=sample(images=[image]))], store_path=store.path)
    reader = RunReader(run_dir)
    assert reader.sample_groups(1, "train")[0].images == (image,)
    assert reader.image(image.sha256) is None
    assert [event.kind for event in reader.events()].count("warning") == 1


def test_training_steps_are_thinned_and_evaluations_are_not(run_dir: Path, store: ImageStore) -> None:
    writer = begin_run(run_dir, record=RecordConfig(every=2))
    for step in (1, 2):
        for split in ("train", "eval"):
            writer.samples(step, split, [group([("a", 1.0)])], store_path=store.path)
    reader = RunReader(run_dir)
    assert (reader.steps("train"), reader.steps("eval")) == ([2], [1, 2])


def test_beyond_the_budget_a_group_keeps_its_numbers_only(run_dir: Path, store: ImageStore) -> None:
    groups = [group([("text", float(number)), ("text", 0.0)], prompt=sample(f"p{number}")) for number in range(4)]
    writer = begin_run(run_dir, record=RecordConfig(full_tokens_per_step=12))
    writer.samples(1, "train", groups, store_path=store.path)
    records = RunReader(run_dir).sample_groups(1, "train")
    assert [record.prompt_id for record in records] == [f"id of p{number}" for number in range(4)]
    full = [record for record in records if record.kept_because is not None]
    assert len(full) == 2
    assert {record.kept_rate for record in records} == {0.5}
    assert all(record.responses[0].text == "text" for record in full)
    for record in records:
        assert record.responses[0].reward == float(record.group_id)
        if record.kept_because is None:
            response = record.responses[0]
            assert (record.prompt, response.text, response.token_ids) == (None, None, None)
            assert (response.parts[0].value, response.parts[0].extracted) == (record.group_id / 2, None)


def test_token_logprobs_can_be_left_out(run_dir: Path, store: ImageStore) -> None:
    begin_run(run_dir, record=RecordConfig(token_logprobs=False)).samples(
        1, "train", [group([("a", 1.0)])], store_path=store.path
    )
    response = RunReader(run_dir).sample_groups(1, "train")[0].responses[0]
    assert (response.token_ids, response.logprobs) == ((10, 11, 12), None)


def test_tokens_are_read_only_when_asked_for(run_dir: Path, store: ImageStore) -> None:
    begin_run(run_dir).samples(1, "train", [group([("a", 1.0)])], store_path=store.path)
    response = RunReader(run_dir).sample_groups(1, "train", with_tokens=False)[0].responses[0]
    assert (response.text, response.token_ids, response.length) == ("a", None, 3)


def test_the_summary_counts_what_the_step_holds(run_dir: Path, store: ImageStore) -> None:
    groups = [group([("a", 1.0), ("b", 0.0)], length=2), group([("c", None), ("d", 2.0)], length=4, cut=True)]
    begin_run(run_dir).samples(3, "eval", groups, store_path=store.path)
    (summary,) = RunReader(run_dir).sample_summaries()
    assert (summary.split, summary.step, summary.attempt) == ("eval", 3, 1)
    assert (summary.num_groups, summary.num_responses, summary.num_full) == (2, 4, 2)
    assert (summary.num_missing, summary.num_truncated) == (1, 2)
    assert (summary.reward_mean, summary.reward_std, summary.length_mean) == (1.0, 1.0, 3.0)


def test_missing_samples_bring_the_nearest_steps_and_other_splits(run_dir: Path, store: ImageStore) -> None:
    writer = begin_run(run_dir)
    with pytest.raises(NotFoundError, match="none were kept yet"):
        RunReader(run_dir).sample_groups(1, "train")
    for step in (2, 4, 6, 8):
        writer.samples(step, "train", [group([("a", 1.0)])], store_path=store.path)
    reader = RunReader(run_dir)
    with pytest.raises(NotFoundError, match="no train samples of step 5; nearest: 2, 4, 6"):
        reader.sample_groups(5, "train")
    with pytest.raises(NotFoundError, match="no eval samples of step 4, but train samples of it"):
        reader.sample_groups(4, "eval")
    with pytest.raises(NotFoundError, match="no test samples; its splits are train"):
        reader.find_samples(None, "test")


def test_a_damaged_file_of_samples_is_told_by_its_name(run_dir: Path, store: ImageStore) -> None:
    begin_run(run_dir).samples(2, "train", [group([("a", 1.0)])], store_path=store.path)
    reader = RunReader(run_dir)
    path = reader.sample_files()["train", 2]
    for damaged in (path.read_bytes()[:-9], b"PAR1" + b"x" * 40 + b"PAR1", b""):
        path.chmod(0o600)
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"train-000002\.parquet cannot be read as samples"):
            reader.sample_groups(2, "train")


def test_the_last_step_is_meant_where_none_is_named(run_dir: Path, store: ImageStore) -> None:
    writer = begin_run(run_dir)
    for step, split in ((0, "eval"), (1, "train"), (2, "train"), (2, "eval")):
        writer.samples(step, split, [group([("a", 1.0)])], store_path=store.path)
    reader = RunReader(run_dir)
    assert reader.find_samples(None, None) == (2, "train")
    assert reader.find_samples(0, None) == (0, "eval")
    assert reader.find_samples(None, "eval") == (2, "eval")


def test_everything_is_kept_in_full_where_it_fits() -> None:
    groups = [group([("a", 1.0)], length=5), group([("b", 0.0)], length=5)]
    for budget in (None, 10):
        selection = choose_groups(groups, step=1, budget=budget)
        assert (selection.reasons, selection.rate) == ({0: "all", 1: "all"}, 1.0)
    assert choose_groups(groups, step=1, budget=0).reasons == {}


def test_best_worst_largest_advantage_and_truncated_are_chosen() -> None:
    """Six groups of 10 tokens and room for five; the sixth choice falls to whichever ranking comes next."""
    prompts = [sample(f"p{number}") for number in range(6)]
    groups = [group([("a", 0.5)], prompt=prompts[number], length=10, advantages=(0.0,)) for number in range(6)]
    groups[1] = group([("a", 9.0)], prompt=prompts[1], length=10, advantages=(0.0,))
    groups[2] = group([("a", -9.0)], prompt=prompts[2], length=10, advantages=(0.0,))
    groups[3] = group([("a", 0.5)], prompt=prompts[3], length=10, advantages=(-5.0,))
    groups[4] = group([("a", 0.5)], prompt=prompts[4], length=10, advantages=(0.0,), cut=True)
    selection = choose_groups(groups, step=1, budget=50)
    assert len(selection.reasons) == 5
    assert selection.rate == pytest.approx(5 / 6)
    reasons = {selection.reasons.get(index) for index in (1, 2, 3, 4)}
    assert reasons <= {"best reward", "worst reward", "largest advantage", "truncated", "fixed prompt"}
    assert len(reasons) == 4


def test_the_same_prompt_is_fixed_at_every_step_and_chance_changes_with_the_step() -> None:
    groups = [group([("a", None)], prompt=sample(f"p{number}"), length=10) for number in range(40)]
    chosen = [choose_groups(groups, step=step, budget=20).reasons for step in range(8)]
    fixed = {index for reasons in chosen for index, reason in reasons.items() if reason == "fixed prompt"}
    random = {index for reasons in chosen for index, reason in reasons.items() if reason == "random"}
    assert len(fixed) == 1
    assert len(random) > 2
    assert chosen[0] == choose_groups(groups, step=0, budget=20).reasons


def test_a_group_larger_than_the_budget_is_still_kept_alone() -> None:
    groups = [group([("a", 1.0)], length=50), group([("b", 0.0)], prompt=sample("p"), length=60)]
    assert len(choose_groups(groups, step=1, budget=10).reasons) == 1


def test_what_a_reward_said_besides_its_value_comes_back(run_dir: Path, store: ImageStore) -> None:
    told = RewardPart("own", 0.5, 1.0, extras={"tests": 3.0, "verdict": "fine \ud800"}, scaled=-1.5, vetoes=False)
    scored = group([("a", 0.5), ("b", 0.5)])
    scored = replace(scored, rewards=(RewardResult(-1.5, (told,)), RewardResult(0.5, (RewardPart("own", 0.5, 1.0),))))
    begin_run(run_dir).samples(1, "train", [scored], store_path=store.path)
    (record,) = RunReader(run_dir).sample_groups(1, "train")
    (first,), (second,) = (response.parts for response in record.responses)
    assert first == replace(told, extras={"tests": 3.0, "verdict": "fine \ud800"})
    assert (second.extras, second.scaled, second.vetoes) == ({}, None, None)


def test_numbers_that_a_reward_gave_are_kept_where_texts_are_not(run_dir: Path, store: ImageStore) -> None:
    part = RewardPart("own", 1.0, 1.0, extras={"tests": 3.0, "verdict": "fine"})
    scored = replace(group([("a", 1.0)]), rewards=(RewardResult(1.0, (part,)),))
    begin_run(run_dir, record=RecordConfig(full_tokens_per_step=0)).samples(1, "train", [scored], store_path=store.path)
    (record,) = RunReader(run_dir).sample_groups(1, "train")
    assert record.responses[0].parts[0].extras == {"tests": 3.0}
