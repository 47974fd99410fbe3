"""The nearest known key to an unknown one: a slip of the pen, the right key in the wrong group, or a peer's word."""

from __future__ import annotations

from difflib import get_close_matches

from mmrl.config.schema import Model, known_keys

_PEERS_WORDS = {
    "adv_estimator": "algorithm.type",
    "advantage_estimator": "algorithm.type",
    "algo": "algorithm.type",
    "batch_size": "rollout.prompts_per_step",
    "beta": "algorithm.kl.coef",
    "bf16": "model.dtype",
    "clip_eps": "algorithm.clip_low",
    "clip_grad": "optim.grad_clip",
    "clip_range": "algorithm.clip_low",
    "clip_ratio": "algorithm.clip_low",
    "clip_ratio_high": "algorithm.clip_high",
    "clip_ratio_low": "algorithm.clip_low",
    "cliprange": "algorithm.clip_low",
    "dataset": "data.train",
    "dataset_name": "data.train",
    "epsilon": "algorithm.clip_low",
    "epsilon_high": "algorithm.clip_high",
    "eval_dataset": "data.eval",
    "eval_interval": "eval.every",
    "eval_steps": "eval.every",
    "freeze_vision": "model.freeze",
    "freeze_vision_tower": "model.freeze",
    "kl_coef": "algorithm.kl.coef",
    "kl_loss_coef": "algorithm.kl.coef",
    "learning_rate": "optim.lr",
    "logger": "track",
    "loss_agg_mode": "algorithm.loss_aggregation",
    "loss_type": "algorithm.loss_aggregation",
    "lr_scheduler": "optim.schedule",
    "lr_scheduler_type": "optim.schedule",
    "max_completion_length": "rollout.max_response_tokens",
    "max_grad_norm": "optim.grad_clip",
    "max_new_tokens": "rollout.max_response_tokens",
    "max_prompt_length": "data.max_prompt_tokens",
    "max_response_length": "rollout.max_response_tokens",
    "max_steps": "train.steps",
    "max_tokens": "rollout.max_response_tokens",
    "mini_batch_size": "train.mini_batches",
    "model_name": "model.path",
    "model_name_or_path": "model.path",
    "n": "algorithm.group_size",
    "num_epochs": "train.steps",
    "num_generations": "algorithm.group_size",
    "num_train_epochs": "train.steps",
    "per_device_train_batch_size": "train.micro_batch_tokens",
    "ppo_epochs": "train.epochs",
    "ppo_mini_batch_size": "train.mini_batches",
    "precision": "model.dtype",
    "report_to": "track",
    "reward_funcs": "reward",
    "reward_functions": "reward",
    "rewards": "reward",
    "rollout_batch_size": "rollout.prompts_per_step",
    "save_freq": "checkpoint.every",
    "save_interval": "checkpoint.every",
    "save_steps": "checkpoint.every",
    "save_total_limit": "checkpoint.keep",
    "task": "kind",
    "test_freq": "eval.every",
    "torch_dtype": "model.dtype",
    "total_steps": "train.steps",
    "total_training_steps": "train.steps",
    "train_batch_size": "rollout.prompts_per_step",
    "train_dataset": "data.train",
    "train_files": "data.train",
    "train_micro_batch_size_per_gpu": "train.micro_batch_tokens",
    "val_files": "data.eval",
    "warmup": "optim.warmup_steps",
}
_NOTES = {
    "batch_size": "'sft.batch_size' for kind sft",
    "num_epochs": "the length of a run is counted in steps; train.epochs is passes over one step's responses",
    "num_train_epochs": "the length of a run is counted in steps; train.epochs is passes over one step's responses",
    "per_device_train_batch_size": "micro-batches are counted in tokens",
    "train_micro_batch_size_per_gpu": "micro-batches are counted in tokens",
    "mini_batch_size": "a count of mini-batches a step, not their size",
    "ppo_mini_batch_size": "a count of mini-batches a step, not their size",
}


def suggest(key: str, siblings: tuple[str, ...], model: Model | None = None) -> str:
    """What to write instead of the unknown dotted `key`; `siblings` are the names known in its group, `model` is the
    class of the whole config where it is not that of training.

    Ends in a list of the group's keys where nothing is near.
    """
    group, _, name = _normal(key).rpartition(".")
    prefix = f"{key.rpartition('.')[0]}." if group else ""
    near = get_close_matches(name, siblings, n=1, cutoff=0.75)
    if near:
        return f"did you mean {prefix + near[0]!r}?"
    known = known_keys(model)
    if key in known:  # of another `type` of its group
        return f"it is no setting of this type; known here: {', '.join(siblings)}"
    if _PEERS_WORDS.get(name) in known:
        note = f" ({_NOTES[name]})" if name in _NOTES else ""
        return f"did you mean {_PEERS_WORDS[name]!r}?{note}"
    elsewhere = _elsewhere(f"{group}.{name}".lstrip("."), name, known)
    if elsewhere:
        return f"did you mean {' or '.join(map(repr, elsewhere))}?"
    if not siblings:
        return "it takes no keys"
    return f"known here: {', '.join(siblings)}"


def _elsewhere(key: str, name: str, known_here: tuple[str, ...]) -> list[str]:
    """Up to three keys of other groups: of that very name, else like the whole dotted key, else of a like name.

    The nearest to the top come first, and the settings of single rewards last.
    """
    others = [known for known in known_here if not key.startswith(f"{known}.")]
    others.sort(key=lambda known: (known.startswith("reward."), known.count(".")))
    by_name: dict[str, list[str]] = {}
    for known in others:
        by_name.setdefault(known.rpartition(".")[2], []).append(known)
    if name in by_name:
        return by_name[name][:3]
    near = get_close_matches(key, others, n=1, cutoff=0.75)
    if near:
        return near
    return [known for match in get_close_matches(name, by_name, n=1, cutoff=0.8) for known in by_name[match][:3]]


def _normal(key: str) -> str:
    return key.strip("-").replace("-", "_").lower()
