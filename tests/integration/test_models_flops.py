import math
from unittest.mock import patch

import pytest
import torch
from models_builders import FAMILIES, mixed_samples, response, sample, user
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mmrl.batch import build_group_batch
from mmrl.config.critic import CriticConfig
from mmrl.config.run import TrainConfig
from mmrl.engines.critic import HfCritic
from mmrl.models import kernels
from mmrl.models.flops import forward_flops, step_flops
from mmrl.models.value_model import ValueModel


def even_batch(policy, pictures):
    """One prompt and responses of one length, so that nothing is padded."""
    prompt = policy.prompts.prepare(mixed_samples(pictures, sees_images=policy.family.sees_images)[2])
    return build_group_batch([prompt], [[response(range(10, 30))] * 4])


def _linear_flops(x_shape, weight_shape, *_, out_shape, **__):
    return 2 * math.prod(out_shape) * x_shape[-1]


def counted(compute):
    """What torch's own counter finds. It knows no CPU attention but the one made of products, and neither oneDNN's
    products nor our kernels."""
    known = {torch.ops.mkldnn._linear_pointwise: _linear_flops}
    torchs_alone = patch.object(kernels, "_kernels", lambda: None)
    with torchs_alone, sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=known) as counter:
        compute()
    return counter.get_total_flops()


@pytest.mark.parametrize("path", ["prefix", "plain"])
@pytest.mark.parametrize("family", FAMILIES)
def test_flops_equal_those_that_torch_counts(tiny_policy, pictures, family, path):
    policy = tiny_policy(family)
    batch = even_batch(policy, pictures)
    forward = forward_flops(policy, batch.prompts, batch.prompt_of_row.tolist(), [20] * 4, path=path)
    assert forward.total == pytest.approx(counted(lambda: policy(batch, path=path)), rel=0.02)
    step = counted(lambda: policy(batch, path=path).logprobs.sum().backward())
    assert step_flops(policy, batch, path=path) == pytest.approx(step, rel=0.02)
    assert (forward.vision > 0) == (family != "qwen2")


@pytest.mark.parametrize("freeze", [("vision",), ("vision", "projector"), ("language",), ("vision", "language")])
def test_flops_of_a_step_leave_out_what_is_frozen(tiny_policy, pictures, freeze):
    policy = tiny_policy("qwen2_5_vl", freeze=freeze)
    batch = even_batch(policy, pictures)
    policy.prefill(batch.prompts)  # as sampling does, which leaves a frozen tower's features behind
    step = counted(lambda: policy(batch).logprobs.sum().backward())
    assert step_flops(policy, batch) == pytest.approx(step, rel=0.05)


def test_an_image_that_occurs_twice_counts_once_on_the_prefix_path(tiny_policy, pictures):
    policy = tiny_policy("qwen2_5_vl")
    once, twice = (policy.prompts.prepare(sample(user(*parts))) for parts in ([pictures[0]], [pictures[0]] * 2))
    vision = [forward_flops(policy, [prompt], [0], [1]).vision for prompt in (once, twice)]
    assert vision[0] == vision[1]
    assert forward_flops(policy, [twice], [0], [1], path="plain").vision == 2 * vision[0]


def test_an_empty_response_costs_nothing_beyond_its_prompt(tiny_policy, pictures):
    policy = tiny_policy("qwen2")
    prompt = policy.prompts.prepare(sample(user("12 + 34?")))
    assert forward_flops(policy, [prompt], [0, 0], [0, 1]) == forward_flops(policy, [prompt], [], [])


def test_flops_of_a_critics_step_equal_those_that_torch_counts(tiny_policy, pictures):
    critic = HfCritic(
        ValueModel(tiny_policy("qwen2_5_vl")), CriticConfig(), TrainConfig(steps=1, mini_batches=1), total_steps=1
    )
    batch = even_batch(critic.model.body, pictures)
    batch = batch.with_(values=torch.zeros_like(batch.response_mask), returns=batch.response_mask.clone())
    found = []
    step = counted(lambda: found.append(critic.train_step(batch)))
    assert found[0]["flops"] == pytest.approx(step, rel=0.02)
