import torch

from mmrl.batch import PreparedPrompt, build_group_batch
from mmrl.config import RunConfig
from mmrl.runs.records import TokenRecord
from mmrl.trainer.canary import Canary
from mmrl.trainer.mean_metrics import MeanMetrics
from mmrl.trainer.mini_batches import split_prompts
from mmrl.trainer.update_records import UpdateBatch, token_records, with_advantages
from mmrl.types import Message, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup, TextPart

MINIMAL = {"name": "n", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}


def rollout(index: int, length: int, mask: tuple[int, ...] | None = None, *, seed: int = 0) -> Rollout:
    ids, sampled = tuple(range(1, length + 1)), mask or (1,) * length
    return Rollout("s", index, ids, sampled, (-0.5,) * length, "stop", "", 0, seed)


def group(*rollouts: Rollout) -> ScoredGroup:
    sample = Sample("s", (Message("user", (TextPart("?"),)),), "1")
    return ScoredGroup(RolloutGroup(sample, rollouts), tuple(RewardResult(1.0, ()) for _ in rollouts))


def batch_of(groups: list[ScoredGroup]):
    prompts = [PreparedPrompt((index,), ()) for index in range(len(groups))]
    return build_group_batch(prompts, [group.group.rollouts for group in groups])


def test_mini_batches_keep_whole_groups_and_every_row_once():
    groups = [group(rollout(0, 2), rollout(1, 3)) for _ in range(5)]

    parts = split_prompts(batch_of(groups), 2)

    assert [len(part.prompts) for part in parts] == [2, 3]
    assert [part.prompt_of_row.tolist() for part in parts] == [[0, 0, 1, 1], [0, 0, 1, 1, 2, 2]]


def test_fewer_groups_than_mini_batches_give_one_group_each():
    assert len(split_prompts(batch_of([group(rollout(0, 1), rollout(1, 1))]), 4)) == 1


def test_a_selected_part_has_only_the_columns_it_needs():
    batch = batch_of([group(rollout(0, 2), rollout(1, 2)), group(rollout(0, 6), rollout(1, 1))])

    first, second = split_prompts(batch, 2)

    assert first.response_ids.tolist() == [[1, 2], [1, 2]]
    assert second.response_ids.shape == (2, 6)
    assert second.response_lengths.tolist() == [6, 1]


def test_recorded_advantages_are_means_over_sampled_tokens_and_none_for_what_was_left_out():
    kept, with_tool, dropped = rollout(0, 2), rollout(1, 3, (1, 0, 1)), rollout(2, 1)
    scored = [group(kept, with_tool, dropped)]
    update = [group(kept, with_tool)]
    batch = batch_of(update).with_(advantages=torch.tensor([[1.0, 2.0, 0.0], [-1.0, 0.0, -2.0]]))

    (recorded,) = with_advantages(scored, UpdateBatch(tuple(update), batch))

    assert recorded.advantages == (1.5, -1.5, None)


def test_two_groups_of_one_sample_keep_their_own_advantages():
    first, again = group(rollout(0, 2), rollout(1, 2)), group(rollout(0, 2, seed=7), rollout(1, 2, seed=8))
    batch = batch_of([first, again]).with_(advantages=torch.tensor([[1.0] * 2, [-1.0] * 2, [3.0] * 2, [-3.0] * 2]))

    recorded = with_advantages([first, again], UpdateBatch((first, again), batch))

    assert [group.advantages for group in recorded] == [(1.0, -1.0), (3.0, -3.0)]


def test_records_get_what_was_computed_of_their_tokens_and_none_for_what_was_not():
    kept, dropped = rollout(0, 2), rollout(1, 1)
    update = UpdateBatch((group(kept),), batch_of([group(kept)]).with_(reference_logprobs=torch.tensor([[-1.0, -2.0]])))

    ((known, unknown),) = token_records([group(kept, dropped)], update, {0: (-0.25, -0.75)})

    assert known == TokenRecord(actor_logprobs=(-0.25, -0.75), reference_logprobs=(-1.0, -2.0), entropy=None)
    assert unknown == TokenRecord()


def test_the_canary_hands_over_the_logprobs_of_each_row_once_however_they_were_batched():
    groups = [group(rollout(0, 2), rollout(1, 1)), group(rollout(0, 1), rollout(1, 2))]
    batch = batch_of(groups)
    canary = Canary(RunConfig.model_validate(MINIMAL), record=lambda values: None)
    for rows, logprobs in (([1, 2], [[-0.5], [-0.5]]), ([0, 3], [[-0.5, -0.5], [-0.5, -0.375]])):
        canary.check(batch.select_rows(torch.tensor(rows)), torch.tensor(logprobs))

    assert canary.take_logprobs() == {0: (-0.5, -0.5), 1: (-0.5,), 2: (-0.5,), 3: (-0.5, -0.375)}
    assert canary.take_logprobs() == {}


def test_metrics_of_several_optimiser_steps_are_means_maxima_and_sums():
    metrics = MeanMetrics()
    metrics.add({"actor/loss": 1.0, "actor/ratio_max": 3.0, "num_tokens": 10.0, "skipped_steps": 0.0})
    metrics.add({"actor/loss": 2.0, "actor/ratio_max": 2.0, "num_tokens": 5.0, "skipped_steps": 1.0})

    assert metrics.means() == {
        "actor/loss": 1.5,
        "actor/ratio_max": 3.0,
        "actor/num_tokens": 15.0,
        "actor/skipped_steps": 1.0,
    }
