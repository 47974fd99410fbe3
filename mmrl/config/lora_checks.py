"""What must fit together where an adapter is trained."""

from __future__ import annotations

from mmrl.config.run import RunConfig


def check_lora(config: RunConfig) -> None:
    lora = config.model.lora
    if lora is None:
        return
    if config.kind == "reward_model":
        raise ValueError("model.lora: kind 'reward_model' trains whole weights; leave it out, or use model.freeze")
    frozen = [part for part in lora.targets if part in config.model.freeze]
    if frozen:
        raise ValueError(
            f"model.lora.targets: {frozen[0]} is in model.freeze too, so it could have no adapter; take it out of one"
        )
    if lora.dropout > 0 and config.kind != "sft":
        raise ValueError(
            f"model.lora.dropout: kind '{config.kind}' has none (got {lora.dropout:g}): a policy with dropout is "
            "another one than its sampler and its reference; set it to 0"
        )
    if lora.dropout > 0 and config.train.gradient_checkpointing:
        raise ValueError(
            f"model.lora.dropout: {lora.dropout:g} does not go with train.gradient_checkpointing, which computes "
            "layers again without what was drawn; set one of them to 0 or false"
        )
    if lora.sync == "adapter" and config.rollout.sleep == "discard_weights":
        raise ValueError(
            "rollout.sleep: discard_weights would lose the weights beside the adapter, which alone comes with an "
            "update; set keep_weights or auto, or model.lora.sync: merged"
        )
    if lora.sync == "adapter" and config.rollout.engine == "vllm" and tuple(lora.targets) != ("language",):
        raise ValueError(
            f"model.lora.sync: engine 'vllm' takes an adapter of the language model alone (targets are "
            f"{', '.join(lora.targets)}); set sync: merged, or targets: [language]"
        )
