"""What SFT, preferences and reward models learn from: turns, marks, packed rows, calibration, the kept reference."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models_builders import FAMILIES, mixed_batch, response, sample, turn, user
from pydantic import ValidationError

from mmrl.algorithms.calibration import expected_calibration_error, preference_metrics
from mmrl.algorithms.preferences import PREFERENCES
from mmrl.algorithms.reward_model import BradleyTerryObjective
from mmrl.batch import GroupBatch, PreparedPrompt, build_group_batch
from mmrl.cluster.policy.shares import row_shares
from mmrl.config import RunConfig
from mmrl.config.preference import PreferenceConfig
from mmrl.data.normalise import make_sample
from mmrl.data.serialise import messages_to_json
from mmrl.engines.micro_batches import num_forwarded_tokens, plan_micro_batches
from mmrl.errors import DataError, RunFailedError
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.engines import SketchMaker
from mmrl.trainer.pair_evaluation import portions
from mmrl.trainer.preference_batches import mismatched
from mmrl.trainer.reference_cache import ReferenceCache, ReferenceKey
from mmrl.trainer.reference_logprobs import ReferenceLogprobs
from mmrl.trainer.targets import conversation, judged_of, pair_of

TALK = (
    turn("system", "Be brief."),
    user("One?"),
    turn("assistant", "1"),
    user("Two?"),
    turn("assistant", "2"),
    user("Three?"),
)


def config_with(**settings: Any) -> RunConfig:
    return RunConfig.model_validate({"name": "a", "model": {"path": "m"}, "data": {"train": "d"}, **settings})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kind": "sft", "preference": {"type": "ipo"}}, "preference: these settings are for kind 'preference'"),
        ({"kind": "rl", "reward_model": {"centring": 0}}, "reward_model: these settings are for kind 'reward_model'"),
        ({"kind": "preference", "preference": {"type": "kto", "batch_size": 1}}, "needs at least 2 samples"),
        ({"kind": "reward_model", "reward": [{"type": "exact"}]}, "reward: kind 'reward_model' samples no responses"),
        ({"kind": "preference", "algorithm": {"type": "rloo"}}, "algorithm 'rloo' would not be used"),
        ({"kind": "preference", "train": {"epochs": 2}}, "one optimiser step of preference.batch_size samples"),
        ({"kind": "reward_model", "train": {"path": "packed"}}, "packed repeats the prompt"),
        (
            {"kind": "preference", "stages": [{"after": "reward", "path": "x.py", "name": "X"}]},
            "stages of your own stand between those of kind 'rl'",
        ),
        ({"kind": "preference", "preference": {"type": "dpo", "gamma": 1.0}}, "Extra inputs"),
        ({"kind": "preference", "preference": {"type": "robust", "label_smoothing": 0.5}}, "less than 0.5"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        config_with(**settings)


def test_every_type_of_preference_has_a_loss() -> None:
    union, _ = PreferenceConfig.__origin__, PreferenceConfig.__metadata__  # type: ignore[attr-defined]
    assert {member.model_fields["type"].default for member in union.__args__} == set(PREFERENCES)
    assert config_with(kind="preference", preference={"beta": 0.2}).preference.type == "dpo"


def test_a_conversation_is_learned_from_its_first_answer_on() -> None:
    row = make_sample(TALK, "3", {})
    everything = conversation(row, "all_assistant")
    assert everything is not None
    assert [message.text for message in everything.prompt.messages] == ["Be brief.", "One?"]
    assert [message.text for message in everything.turns] == ["1", "Two?", "2", "Three?", "3"]
    assert everything.is_learned == (True, True, True)
    last = conversation(row, "last")
    assert last is not None
    assert [message.text for message in last.turns] == ["3"]
    assert len(last.prompt.messages) == 6


def test_marked_turns_alone_are_learned() -> None:
    row = make_sample(TALK, "3", {"train_turns": [False, True, False]})
    part = conversation(row, "marked")
    assert part is not None
    assert [message.text for message in part.turns] == ["2"]
    both = conversation(make_sample(TALK, "3", {"train_turns": [True, False, True]}), "marked")
    assert both is not None
    assert both.is_learned == (True, False, True)
    assert conversation(make_sample(TALK, "3", {"train_turns": [False] * 3}), "marked") is None
    with pytest.raises(DataError, match="a true or false for each of its 3 assistant turns"):
        conversation(make_sample(TALK, "3", {"train_turns": [1]}), "marked")


def test_an_assistant_turn_that_opens_a_conversation_is_no_answer() -> None:
    row = make_sample((turn("assistant", "Hello!"), user("One?")), "1", {})
    part = conversation(row, "all_assistant")
    assert part is not None
    assert [message.text for message in part.turns] == ["1"]


@pytest.mark.parametrize("family", FAMILIES)
def test_turns_are_encoded_as_the_template_writes_them(tiny_policy: Callable[..., Any], family: str) -> None:
    prompts = tiny_policy(family).prompts
    row = make_sample(TALK, "3", {})
    part = conversation(row, "all_assistant")
    assert part is not None
    encoded = prompts.encode_turns(part.prompt, part.turns, part.is_learned)
    prompt = prompts.sketch(part.prompt)
    messages = [{"role": message.role, "content": message.text} for message in (*TALK, turn("assistant", "3"))]
    rendered = prompts.processor.apply_chat_template(messages, tokenize=False)
    expected = prompts.tokenizer(rendered, add_special_tokens=False)["input_ids"]
    found = [*prompt.token_ids, *encoded.ids]
    assert found == expected[: len(found)]
    assert prompts.tokenizer.decode(expected[len(found) :]).strip() == ""
    learned = [token for token, bit in zip(encoded.ids, encoded.mask, strict=True) if bit]
    assert learned == [id for text in ("1", "2", "3") for id in prompts.encode_response(text)]


def test_words_between_answers_are_never_control_tokens(tiny_policy: Callable[..., Any]) -> None:
    prompts = tiny_policy("qwen2_5_vl").prompts
    turns = (turn("assistant", "1"), user("<|image_pad|>?"), turn("assistant", "<|im_end|>"))
    encoded = prompts.encode_turns(sample(user("One?")), turns, (True, True))
    assert prompts.image_token_id not in encoded.ids
    end = prompts.encode_response("")[0]
    assert encoded.ids.count(end) == 3, "one for each of the three turns"


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_images_between_answers_are_seen_by_what_follows(
    tiny_policy: Callable[..., Any], pictures: Any, family: str
) -> None:
    """As the same conversation whose last answer alone is learned, which has every image in its prompt."""
    policy = tiny_policy(family)
    talk = (user(pictures[0], "One?"), turn("assistant", "7"), user("And ", pictures[1], "?"))
    answers = AnswerBatches(policy.prompts)
    row = make_sample(talk, "8", {})
    several, last = (answers.targets([row], train_on=train_on) for train_on in ("all_assistant", "last"))
    assert several.response_images is not None
    assert last.response_images is None
    with torch.no_grad():
        expected = policy(last, path="prefix").logprobs[0]
        for path in ("packed", "plain"):
            found = policy(several, path=path).logprobs[0]
            torch.testing.assert_close(found[-len(expected) :], expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_rows_are_exact(tiny_policy: Callable[..., Any], pictures: Any, family: str) -> None:
    policy = tiny_policy(family)
    batch = mixed_batch(policy, pictures)
    found = {}
    for path in ("plain", "packed"):
        policy.zero_grad()
        stats = policy(batch, path=path, with_entropy=True)
        weights = torch.linspace(0.5, 1.5, stats.logprobs.numel()).view_as(stats.logprobs)
        (stats.logprobs * weights).sum().backward()
        gradient = torch.cat([weight.grad.flatten() for weight in policy.parameters() if weight.grad is not None])
        found[path] = (stats.logprobs.detach(), stats.entropy.detach(), gradient)
    for mine, theirs in zip(found["packed"][:2], found["plain"][:2], strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-6, rtol=0)
    difference = (found["packed"][2] - found["plain"][2]).norm() / found["plain"][2].norm()
    assert difference < 1e-6


def test_packed_rows_are_exact_where_layers_run_again(tiny_policy: Callable[..., Any], pictures: Any) -> None:
    policy, again = tiny_policy("qwen2_5_vl"), tiny_policy("qwen2_5_vl")
    again.checkpoint_gradients()
    batch = mixed_batch(policy, pictures)
    for one in (policy, again):
        one(batch, path="packed").logprobs.sum().backward()
    for mine, theirs in zip(again.parameters(), policy.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_packed_micro_batches_take_what_their_rows_are_long() -> None:
    prompts = [PreparedPrompt((1,) * length, ()) for length in (3, 9, 4)]
    batch = build_group_batch(prompts, [[response([1] * length)] for length in (2, 1, 6)])
    assert num_forwarded_tokens(batch, path="packed") == 25
    assert num_forwarded_tokens(batch, path="plain") == 30
    parts = [rows.tolist() for rows in plan_micro_batches(batch, 15, path="packed")]
    assert sorted(map(sorted, parts)) == [[0, 1], [2]] or sorted(map(sorted, parts)) == [[0, 2], [1]]


def pairs_batch(num_pairs: int) -> GroupBatch:
    prompts = [PreparedPrompt((1,) * 4, ())] * num_pairs
    rows = [[response([1, 2, 3]), response([4] * 5)] for _ in range(num_pairs)]
    return build_group_batch(prompts, rows).with_(preferred=torch.tensor([1.0, 0.0] * num_pairs), whole_groups=True)


@pytest.mark.parametrize("path", ["prefix", "plain", "packed"])
def test_pairs_are_never_torn_apart(path: Any) -> None:
    batch = pairs_batch(3)
    assert [rows.tolist() for rows in plan_micro_batches(batch, 5, path=path)] == [[0, 1], [2, 3], [4, 5]]
    shares = row_shares(batch, 4)
    assert sorted(rows.tolist() for rows in shares) == [[], [0, 1], [2, 3], [4, 5]]


def test_answers_are_mismatched_with_the_next_prompt() -> None:
    batch = build_group_batch(
        [PreparedPrompt((number,), ()) for number in (1, 2, 3)], [[response([7])], [response([8]), response([9])], []]
    )
    assert [prompt.token_ids for prompt in mismatched(batch).prompts] == [(2,), (3,), (1,)]
    assert mismatched(batch).prompt_of_row.tolist() == [0, 1, 1]


def test_pairs_and_judged_answers_are_read_from_rows() -> None:
    chosen, rejected = ([turn("assistant", text)] for text in ("7", "8"))
    marks = {"chosen": messages_to_json(chosen), "rejected": messages_to_json(rejected)}
    pair = pair_of(make_sample((user("?"),), None, marks))
    assert pair is not None
    assert [(judged.turns[0].text, judged.is_good) for judged in pair] == [("7", True), ("8", False)]
    assert judged_of(make_sample((user("?"),), None, marks)) == pair
    single = make_sample((user("?"),), None, {"completion": messages_to_json(chosen), "label": False})
    assert [judged.is_good for judged in judged_of(single)] == [False]
    assert pair_of(single) is None
    others = [("8", False), ("7", True), (None, None)]
    rows = [
        make_sample((user("?"),), None, {"completion": messages_to_json([turn("assistant", text)]), "label": label})
        if text
        else make_sample((user("?"),), None, {})
        for text, label in others
    ]
    assert len({row.id for row in (single, *rows)}) == 4, "rows of one prompt are told apart by what was judged"
    assert judged_of(make_sample((user("?"),), "7", {"label": True})) == ()


def test_held_out_samples_come_in_portions_without_a_single_one_left_over() -> None:
    rows = [make_sample((user(str(index)),), None, {}) for index in range(7)]
    assert [len(part) for part in portions(rows, 3)] == [3, 4]
    assert [len(part) for part in portions(rows[:6], 4)] == [4, 2]
    assert [len(part) for part in portions(rows[:1], 4)] == [1]


def test_bradley_terry_has_margins_and_centring_worked_by_hand() -> None:
    """Scores 2 and 0.5 with margin 0.5: -log sigma(1) + 0.01 · 2.5²; then 0 and 1 without: -log sigma(-1) + 0.01."""
    batch = pairs_batch(2).with_(margins=torch.tensor([0.5, 0.5, 0.0, 0.0]))
    scores = torch.tensor([2.0, 0.5, 0.0, 1.0], requires_grad=True)
    output = BradleyTerryObjective(batch, centring=0.01)(batch, scores)
    assert output.loss.item() == pytest.approx((0.3132617 + 0.0625 + 1.3132617 + 0.01) / 2, abs=1e-6)
    output.loss.backward()
    expected = [-0.2689414 + 0.05, 0.2689414 + 0.05, -0.7310586 + 0.02, 0.7310586 + 0.02]
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([value / 2 for value in expected], abs=1e-6)
    assert output.sums["reward_model/accuracy"] == (1.0, 2.0)
    assert output.sums["reward_model/margin"] == (pytest.approx(0.5), 2.0)


def test_calibration_is_that_of_hand_numbers() -> None:
    """Chances 0.9, 0.6, 0.6 and 0.2: right, right, right, wrong with confidence 0.8."""
    chances = torch.tensor([0.9, 0.6, 0.6, 0.2], dtype=torch.float64)
    metrics = preference_metrics(chances.logit())
    assert metrics["accuracy"] == 0.75
    assert metrics["brier"] == pytest.approx((0.01 + 0.16 + 0.16 + 0.64) / 4)
    assert metrics["ece"] == pytest.approx(0.25 * 0.1 + 0.5 * 0.4 + 0.25 * 0.8)
    assert preference_metrics(torch.zeros(4))["accuracy"] == 0.5
    assert expected_calibration_error(torch.tensor([1.0]), torch.tensor([1.0])) == 0.0


@pytest.fixture
def batch(tiny_policy: Callable[..., Any], pictures: Any) -> GroupBatch:
    maker = SketchMaker(tiny_policy("qwen2_5_vl").prompts)
    rows = []
    for index, picture in enumerate(pictures):
        texts = {"chosen": str(index), "rejected": f"no {index}"}
        marks = {name: messages_to_json([turn("assistant", text)]) for name, text in texts.items()}
        rows.append(make_sample((user(picture, "Which digit?"),), None, marks))
    return AnswerBatches(maker).pairs(rows)


def cache_of(folder: Path, fingerprint: str = "a", **settings: Any) -> ReferenceCache:
    told: list[str] = []
    cache = ReferenceCache(ReferenceKey({"commit": fingerprint}, settings), folder=folder, warn=told.append)
    cache.told = told  # type: ignore[attr-defined]
    return cache


def test_the_reference_is_found_by_content_and_never_another_ones(tmp_path: Path, batch: GroupBatch) -> None:
    values = torch.rand(batch.response_mask.shape) * batch.response_mask
    cache_of(tmp_path).add(batch, values)
    found, known = cache_of(tmp_path).find(batch)
    assert known.all()
    assert torch.equal(found, values)
    assert not cache_of(tmp_path, "b").find(batch)[1].any(), "another model"
    assert not cache_of(tmp_path, dtype="bfloat16").find(batch)[1].any(), "another precision"
    assert not cache_of(tmp_path).find(mismatched(batch))[1].any(), "other prompts"
    resized = [
        PreparedPrompt(prompt.token_ids, tuple(_other_size(image) for image in prompt.images))
        for prompt in batch.prompts
    ]
    assert not cache_of(tmp_path).find(batch.with_(prompts=tuple(resized)))[1].any(), "other sizes of the images"
    masked = batch.with_(response_mask=batch.response_mask * 0)
    assert not cache_of(tmp_path).find(masked)[1].any(), "other tokens to learn"
    some = batch.select_rows(torch.tensor([2, 3]))
    assert torch.equal(cache_of(tmp_path).find(some)[0], values[2:4, : some.response_ids.shape[1]])


def _other_size(image: Any) -> Any:
    from dataclasses import replace

    return replace(image, processed_size=(28, 28))


def test_the_reference_computes_each_answer_once(tmp_path: Path, batch: GroupBatch) -> None:
    asked: list[int] = []

    def compute(part: GroupBatch) -> torch.Tensor:
        asked.append(part.num_rows)
        return part.response_ids.float() + 1

    reference = ReferenceLogprobs(cache_of(tmp_path))
    first = batch.select_rows(torch.tensor([0, 1]))
    assert reference.prepare([first, batch, batch], compute) == 6
    assert asked == [2, 4]
    assert not reference.missing(batch)
    expected = (batch.response_ids.float() + 1) * batch.response_mask
    assert torch.equal(reference(batch), expected)
    lost = ReferenceLogprobs(cache_of(tmp_path / "elsewhere"))
    with pytest.raises(RunFailedError, match="for 6 answers are no longer in"):
        lost(batch)
    lost.compute = compute
    assert torch.equal(lost(batch), expected)


def test_a_damaged_file_costs_the_computing_only(tmp_path: Path, batch: GroupBatch) -> None:
    cache = cache_of(tmp_path)
    cache.path.write_bytes(b"no database at all, but long enough to be looked at" * 40)
    assert not cache.find(batch)[1].any()
    values = torch.ones_like(batch.response_mask) * batch.response_mask
    cache.add(batch, values)
    assert torch.equal(cache.find(batch)[0], values)
    assert len(cache.told) == 1  # type: ignore[attr-defined]
    assert "cannot be kept in" in cache.told[0]  # type: ignore[attr-defined]
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(cache.path).execute("SELECT * FROM answers")
