"""What a run holds in memory, for each process of its pools: where models are divided, each holds its part of them.

Counted in numbers of the model alone, so that no GPU is needed. Libraries, images and what an allocator wastes come on
top.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from mmrl.algorithms import build_algorithm
from mmrl.config import RunConfig
from mmrl.config.placement import RoleName
from mmrl.engines.sharding import num_replicas, sharded_modules, whole_weights
from mmrl.models.policy import PolicyModel
from mmrl.trainer.estimate import Estimate
from mmrl.trainer.run_data import batch_size, rows_a_prompt, samples_answers

ACTIVATION_BYTES = 34
"""Bytes that a layer keeps for the backward pass, for each token and hidden unit at two bytes a number; without
attention scores, which fused kernels do not keep (Korthikanti et al., arXiv 2205.05198, equation 2)."""

INPUT_BYTES = 4
"""Bytes that a checkpointed layer keeps of its input, for each token and hidden unit."""

MASTER = 4
"""Bytes of a weight, of its gradient, and of each of AdamW's two numbers for it."""


@dataclass(frozen=True)
class ModelSizes:
    """Weights of a model, and what a rank has of them.

    total, trained: of the whole model. whole: those that every rank has all of. largest: the most that are gathered at
    once by a call. groups: calls that gather; ranks: among which the others are divided; copies: of them in all.
    """

    total: int
    trained: int
    whole: int
    largest: int
    groups: int
    ranks: int
    copies: int

    def on_a_rank(self, count: int) -> int:
        """Of `count` divided weights."""
        return -(-count // self.ranks)

    @property
    def held(self) -> int:
        """Weights that lie on a rank between passes."""
        return self.whole + self.on_a_rank(self.total - self.whole)


def model_sizes(config: RunConfig, policy: PolicyModel, role: RoleName = "actor") -> ModelSizes:
    """policy: with or without its weights, not yet divided. Raises ConfigError where the ranks cannot be divided."""
    total, trained = num_parameters(policy)
    num_ranks = config.placement.pools[config.placement.pool_of(role)].workers
    if not is_divided(config, num_ranks):
        return ModelSizes(total, trained, whole=total, largest=0, groups=1, ranks=1, copies=1)
    copies = num_replicas(config.actor.fsdp, num_ranks)
    kept = whole_weights(policy)
    modules = [_count(module.parameters()) for module in sharded_modules(policy)]
    whole = _count(kept)
    rest = total - whole - sum(modules)
    largest = rest + max(modules, default=0) if config.actor.fsdp.reshard_after_forward else total - whole
    return ModelSizes(total, trained, whole, largest, len(modules) + 1, num_ranks // copies, copies)


def is_divided(config: RunConfig, num_ranks: int) -> bool:
    """Whether the models of a pool of `num_ranks` are divided; one worker has them whole unless they are offloaded."""
    return config.placement.executor == "ray" and (num_ranks > 1 or config.actor.fsdp.offload)


def estimate_memory(config: RunConfig, policy: PolicyModel, longest: int) -> list[Estimate]:
    """longest: tokens of the longest prompt."""
    by_role: dict[RoleName, list[Estimate]] = {"actor": _actor(config, policy, longest)}
    if config.kind == "rl" and build_algorithm(config.algorithm).needs_reference:
        by_role["reference"] = _reference(config, policy)
    if config.kind == "rl" and config.algorithm.needs_critic:
        by_role["critic"] = _critic(config, policy)
    if has_sampler(config):
        by_role["rollout"] = [_sampling(config, policy, longest)]
    each = [estimate for estimates in by_role.values() for estimate in estimates]
    return [*_sharding(config, policy), *each, *_together(config, by_role)]


def has_sampler(config: RunConfig) -> bool:
    """Whether something for sampling takes memory: vLLM has weights of its own also where nothing is ever sampled."""
    return samples_answers(config) or (config.rollout.engine == "vllm" and config.kind != "reward_model")


def _together(config: RunConfig, by_role: dict[RoleName, list[Estimate]]) -> list[Estimate]:
    """What each process of a pool has in all."""
    placement = config.placement
    on_top = "images and libraries come on top"
    if placement.executor == "inline":
        total = sum(estimate.value for estimates in by_role.values() for estimate in estimates)
        return [_bytes("memory", total, f"all of these together; {on_top}")]
    totals: dict[str, float] = {}
    for role, estimates in by_role.items():
        pool = placement.pool_of(role)
        on_device = (estimate.value for estimate in estimates if estimate.place == "device")
        totals[pool] = totals.get(pool, 0.0) + sum(on_device)
    found = []
    for pool, total in totals.items():
        roles = [role for role in by_role if placement.pool_of(role) == pool]
        device = "its GPU" if placement.pools[pool].gpus_per_worker else "its process"
        reason = (
            f"on {device}, in each of the {placement.pools[pool].workers} workers of pool {pool}: {', '.join(roles)}"
        )
        found.append(_bytes("memory" if len(totals) == 1 else f"memory in {pool}", total, f"{reason}; {on_top}"))
    in_host = sum(one.value for estimates in by_role.values() for one in estimates if one.place == "host")
    if in_host:
        found.append(_bytes("CPU memory", in_host, "in each worker, of what actor.fsdp.offload keeps there"))
    return found


def _sharding(config: RunConfig, policy: PolicyModel) -> list[Estimate]:
    sizes = model_sizes(config, policy)
    if not sizes.largest:
        return []
    whole = f"; {sizes.whole:,} frozen weights of the vision part are whole on every rank" if sizes.whole else ""
    parts = ", ".join(f"{count} {name}" for name, count in _kinds(sharded_modules(policy)).items())
    return [
        Estimate(
            "sharding",
            sizes.groups,
            "parts",
            f"{parts} and the rest as one are each divided among {sizes.ranks} ranks and gathered when they run, "
            f"{sizes.largest:,} weights at most at a time; {sizes.copies} "
            f"{'copy' if sizes.copies == 1 else 'copies'} of the weights in all{whole}",
        )
    ]


def _actor(config: RunConfig, policy: PolicyModel, longest: int) -> list[Estimate]:
    sizes = model_sizes(config, policy)
    trained = sizes.on_a_rank(sizes.trained)
    part = _part(sizes)
    place = _place(config)
    found = [
        _bytes("weights", MASTER * sizes.held, f"{sizes.total:,} weights in float32{part}", place),
        _bytes("gradients", MASTER * trained, f"{sizes.trained:,} trained weights in float32{part}", place),
        _bytes(
            "optimiser", 2 * MASTER * trained, f"AdamW keeps two float32 numbers for each trained weight{part}", place
        ),
    ]
    if sizes.largest:
        found.append(_gathered(config, sizes))
    return [*found, _activations(config, policy, longest)]


def _gathered(config: RunConfig, sizes: ModelSizes) -> Estimate:
    size = number_bytes(config)
    return _bytes(
        "gathered weights",
        size * sizes.largest,
        f"{sizes.largest:,} weights in {config.model.dtype}: what is not divided by layers, and the largest layer"
        if config.actor.fsdp.reshard_after_forward
        else f"{sizes.largest:,} weights in {config.model.dtype}: all, since reshard_after_forward is off",
    )


def _reference(config: RunConfig, policy: PolicyModel) -> list[Estimate]:
    sizes = model_sizes(config, policy, "reference")
    reason = f"a second copy of the weights, for the KL term{_part(sizes)}"
    return [_bytes("reference", MASTER * sizes.held, reason, _place(config))]


def _critic(config: RunConfig, policy: PolicyModel) -> list[Estimate]:
    sizes = model_sizes(config, policy, "critic")
    held = MASTER * sizes.held + 3 * MASTER * sizes.on_a_rank(sizes.trained)
    return [_bytes("critic", held, f"taken to be as large as the policy{_part(sizes)}", _place(config))]


def _sampling(config: RunConfig, policy: PolicyModel, longest: int) -> Estimate:
    if config.rollout.engine == "hf":
        return _cache(config, policy, longest)
    split = config.rollout.tensor_parallel
    size = 4 if config.model.dtype == "float32" else 2
    return _bytes(
        "sampling weights",
        size * num_parameters(policy)[0] / split,
        f"vllm's own copy in {config.model.dtype}, divided among {split} (rollout.tensor_parallel); "
        + _vllm_cache(config),
    )


def _vllm_cache(config: RunConfig) -> str:
    rollout, placement = config.rollout, config.placement
    if rollout.kv_cache_gib is not None:
        return f"its cache takes rollout.kv_cache_gib {rollout.kv_cache_gib:g} more"
    if not placement.pools[placement.pool_of("rollout")].gpus_per_worker:
        return f"on the CPU its cache takes what {rollout.max_batch_rows} responses need, up to 4 GiB more"
    return (
        f"its cache takes what rollout.gpu_memory_utilization {rollout.gpu_memory_utilization:g} leaves, and sleeps "
        "during updates where rollout.sleep allows it"
    )


def _cache(config: RunConfig, policy: PolicyModel, longest: int) -> Estimate:
    """Keys and values while sampling: each prompt's once a group, each response's own."""
    text = policy.hf.config.get_text_config()
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    width = 2 * text.num_hidden_layers * text.num_key_value_heads * head * number_bytes(config)
    rows, group = config.rollout.max_batch_rows, config.algorithm.group_size
    if config.kind != "rl":
        group = config.eval.samples_per_prompt
    prompts = -(-rows // group)
    tokens = rows * config.rollout.max_response_tokens + prompts * longest
    return _bytes(
        "sampling cache",
        tokens * width,
        f"{rows} rows (rollout.max_batch_rows) of {config.rollout.max_response_tokens} tokens and {prompts} prompts of "
        f"up to {longest}, {width:,} bytes a token",
    )


def _activations(config: RunConfig, policy: PolicyModel, longest: int) -> Estimate:
    text = policy.hf.config.get_text_config()
    group = rows_a_prompt(config)
    in_a_step = batch_size(config)[1] * (longest + group * config.rollout.max_response_tokens)
    tokens = min(config.train.micro_batch_tokens, in_a_step)
    layer = ACTIVATION_BYTES * number_bytes(config) // 2
    layers, unit = text.num_hidden_layers, tokens * text.hidden_size
    at_once = f"{tokens} tokens at once (at most train.micro_batch_tokens)"
    if config.train.gradient_checkpointing:
        size = unit * (layers * INPUT_BYTES + layer)
        kept = f"{INPUT_BYTES} bytes for each token, layer and unit, and {layer} for the layer that runs again"
    else:
        size = unit * layers * layer
        kept = f"{layer} bytes for each token, layer and unit"
    through = f"through {layers} layers of {text.hidden_size}"
    return _bytes("activations", size, f"{at_once} {through}, {kept}; logits are made in chunks")


def num_parameters(policy: PolicyModel) -> tuple[int, int]:
    """Of all weights and of the trained ones."""
    parameters = list(policy.parameters())
    return _count(parameters), _count(parameter for parameter in parameters if parameter.requires_grad)


def number_bytes(config: RunConfig) -> int:
    """Of a number in the passes."""
    return {"bfloat16": 2, "float32": 4, "float64": 8}[config.model.dtype]


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _kinds(modules: Iterable[nn.Module]) -> dict[str, int]:
    """How many modules of each class."""
    counts: dict[str, int] = {}
    for module in modules:
        name = type(module).__name__
        counts[name] = counts.get(name, 0) + 1
    return counts


def _place(config: RunConfig) -> str:
    """Where the parts of a rank rest."""
    return "host" if config.actor.fsdp.offload and config.placement.executor == "ray" else "device"


def _part(sizes: ModelSizes) -> str:
    return f", divided among {sizes.ranks}" if sizes.ranks > 1 else ""


def _bytes(name: str, value: float, reason: str, place: str = "device") -> Estimate:
    return Estimate(name, float(value), "bytes", reason, place)
