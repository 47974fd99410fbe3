"""What an exported model is checked for, by loading it again as others will."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image
from safetensors import safe_open

from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.engines.base import SamplingParams
from mmrl.engines.rollout_hf import HfRollout
from mmrl.errors import ModelError
from mmrl.models.loading import device_of, family_of, load_prompts, load_skeleton
from mmrl.models.lora import ADAPTER_FILE
from mmrl.models.policy import PolicyModel, checkpoint_names, load_policy
from mmrl.models.processing import PromptProcessor
from mmrl.models.quiet import without_progress_bars
from mmrl.models.reward_model import HEAD_FILE, is_reward_model, load_reward_model
from mmrl.runs.checkpoint_refs import ModelRef
from mmrl.trainer.lineage import Lineage
from mmrl.types import ImagePart, Message, Role, Sample, TextPart

NUM_TOKENS = 24
"""Of each greedy answer that is compared."""

_SHOWN = 5
_TIED_HEAD = "lm_head.weight"


@dataclass(frozen=True)
class Verified:
    """num_weights: tensors in the files, all of them those of the architecture. num_prompts: read token by token as by
    the base model, None where that is gone. num_answers: greedy answers that were the same in transformers, None
    where they were not compared."""

    num_weights: int
    num_prompts: int | None
    num_answers: int | None
    sees_images: bool
    is_reward_model: bool

    @property
    def lines(self) -> list[str]:
        compared = "scores" if self.is_reward_model else f"greedy answers of up to {NUM_TOKENS} tokens"
        lines = [f"{self.num_weights} weights, exactly those of the architecture"]
        if self.num_prompts is None:
            lines.append("the base model is not there any more, so prompts were not compared with its")
        else:
            lines.append(
                f"{self.num_prompts} prompts, read token by token as by the base model and by its chat template"
            )
        if self.num_answers is None:
            return [*lines, "answers were not compared"]
        return [*lines, f"{self.num_answers} {compared}, the same after loading again"]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verify(
    folder: Path, ref: ModelRef, lineage: Lineage, *, compare_answers: bool, say: Callable[[str], None]
) -> Verified:
    """folder: the export of `ref`, under a name of its own. Raises ModelError that says what is not as it should be."""
    config = _model_config(folder)
    with TemporaryDirectory(prefix="mmrl-export-") as scratch:
        store = ImageStore(Path(scratch))
        prompts = load_prompts(str(folder), ImageConfig(), store=store)
        samples = probes(prompts, store)
        say(f"export: checking the weights of {ref.label}")
        num_weights = check_weights(folder, config, store)
        num_prompts = _check_prompts(prompts, lineage, samples, store)
        is_scoring, num_answers = is_reward_model(str(folder)), None
        if compare_answers:
            say("export: comparing answers after loading again")
            check = _check_scores if is_scoring else _check_answers
            num_answers = check(folder, ref.model, samples, store)
    return Verified(num_weights, num_prompts, num_answers, prompts.images is not None, is_scoring)


def verify_adapter(
    folder: Path, ref: ModelRef, lineage: Lineage, *, compare_answers: bool, say: Callable[[str], None]
) -> Verified:
    """The same of an adapter: loaded by peft beside the base model, it answers as the merged model of `ref`."""
    from peft import PeftModel

    with TemporaryDirectory(prefix="mmrl-export-") as scratch:
        store = ImageStore(Path(scratch))
        prompts = load_prompts(str(ref.model), ImageConfig(), store=store)
        samples = probes(prompts, store)
        num_prompts, num_answers = _check_prompts(prompts, lineage, samples, store), None
        with safe_open(folder / ADAPTER_FILE, framework="pt") as weights:
            num_weights = len(list(weights.keys()))
        if compare_answers and lineage.base is not None:
            say("export: comparing answers of the base model with the adapter")
            base = _plain_model(Path(lineage.base))
            num_answers = _compare(PeftModel.from_pretrained(base, folder).eval(), ref.model, samples, store)
    return Verified(num_weights, num_prompts, num_answers, prompts.images is not None, False)


def check_weights(folder: Path, config: ModelConfig, store: ImageStore) -> int:
    """The number of weights. Raises ModelError naming those that are missing, unknown or of another shape."""
    skeleton = load_skeleton(config, ImageConfig(), store=store)
    names = checkpoint_names(skeleton.hf)
    expected = {names[name]: tuple(weight.shape) for name, weight in skeleton.hf.named_parameters()}
    stored: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        if file.name == HEAD_FILE:
            continue
        with safe_open(file, framework="pt") as weights:
            stored |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    faults = {
        "missing": sorted(expected.keys() - stored.keys()),
        "unknown": sorted(stored.keys() - expected.keys() - {_TIED_HEAD}),
        "of another shape": sorted(name for name in expected.keys() & stored.keys() if expected[name] != stored[name]),
    }
    found = [f"{len(names)} {what} ({', '.join(names[:_SHOWN])})" for what, names in faults.items() if names]
    if found:
        raise ModelError(f"export {folder.name}: its weights are not those of its config.json: {'; '.join(found)}")
    return len(stored)


def probes(prompts: PromptProcessor, store: ImageStore) -> list[Sample]:
    """Prompts of every shape that a template treats apart: with a system line, an empty one and none, of several turns,
    with one image and with two, with characters of many scripts."""
    shapes: list[list[tuple[Role, str, int]]] = [
        [("user", "What is 7 + 5?", 0)],
        [("system", "Answer in one word.", 0), ("user", "Which digit is it?", 0)],
        [("system", "", 0), ("user", "Say: 你好, Ünïcode 🙂", 0)],
        [("user", "Count to 3.", 0), ("assistant", "1 2 3", 0), ("user", "And on?\n\n- a\n- b", 0)],
    ]
    if prompts.images is not None:
        shapes += [[("user", "Which digit is it?", 1)], [("system", "Look.", 0), ("user", "Which is larger?", 2)]]
    return [_sample(index, turns, store) for index, turns in enumerate(shapes)]


def check_reads_like(mine: PromptProcessor, base: PromptProcessor, samples: Sequence[Sample]) -> None:
    """Raises ModelError where two models read a prompt otherwise: ids, or the pixels of its images."""
    for sample in samples:
        one, other = mine.prepare(sample), base.prepare(sample)
        if one.token_ids != other.token_ids:
            place = next(
                (at for at, (a, b) in enumerate(zip(one.token_ids, other.token_ids, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            raise ModelError(
                f"export: the prompt {sample.messages[-1].text!r} has {len(one)} tokens and with the base model "
                f"{len(other)}, first different at {place}; its chat template or tokenizer is another one"
            )
        for image, same in zip(one.images, other.images, strict=True):
            if not torch.equal(image.pixel_values, same.pixel_values):
                raise ModelError("export: an image is cut into other patches than by the base model's image processor")


def check_reads_like_template(prompts: PromptProcessor, samples: Sequence[Sample]) -> None:
    """Raises ModelError where transformers' own `apply_chat_template` renders a prompt to other ids than mmrl reads.

    A default system line that only one of them adds would be such a difference.
    """
    for sample in samples:
        messages = [_to_template(message, sees_images=prompts.images is not None) for message in sample.messages]
        text = prompts.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        theirs = prompts.tokenizer(text, add_special_tokens=False)["input_ids"]
        ours = list(prompts.short_ids(sample))
        if ours != theirs:
            raise ModelError(
                f"export: the chat template renders the prompt {sample.messages[-1].text!r} to {len(theirs)} tokens "
                f"where the run read {len(ours)}; whoever serves the model would ask it something else"
            )


def generate_plainly(hf: Any, prompts: PromptProcessor, sample: Sample, *, num_tokens: int) -> list[int]:
    """A greedy answer by transformers' `generate` alone, under the bans of every sampler of mmrl."""
    prompt = prompts.prepare(sample)
    inputs: dict[str, Any] = {"input_ids": torch.tensor([prompt.token_ids])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if prompt.images:
        inputs["pixel_values"] = torch.cat([image.pixel_values for image in prompt.images])
        inputs["image_grid_thw"] = torch.tensor([image.grid_thw for image in prompt.images])
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == prompts.image_token_id).int()
    with torch.no_grad():
        ids = hf.generate(
            **{name: tensor.to(hf.device) for name, tensor in inputs.items()},
            do_sample=False,
            max_new_tokens=num_tokens,
            eos_token_id=sorted(prompts.end_token_ids),
            pad_token_id=prompts.pad_token_id,
            suppress_tokens=list(prompts.banned_token_ids),
        )
    return [int(token) for token in ids[0, len(prompt) :]]


def _check_prompts(
    prompts: PromptProcessor, lineage: Lineage, samples: Sequence[Sample], store: ImageStore
) -> int | None:
    check_reads_like_template(prompts, samples)
    if lineage.base is None or not Path(lineage.base).is_dir():
        return None
    check_reads_like(prompts, load_prompts(lineage.base, ImageConfig(), store=store), samples)
    return len(samples)


def _check_answers(folder: Path, original: Path, samples: Sequence[Sample], store: ImageStore) -> int:
    """The checkpoint's answers by mmrl's own sampler against those of the export by transformers alone."""
    return _compare(_plain_model(folder), original, samples, store)


def _plain_model(folder: Path) -> Any:
    with without_progress_bars():
        hf = family_of(str(folder)).auto_class.from_pretrained(folder, dtype=torch.float32)
    return hf.to(device_of(_model_config(folder)))


def _compare(hf: Any, original: Path, samples: Sequence[Sample], store: ImageStore) -> int:
    policy = load_policy(_model_config(original), ImageConfig(), store=store, trainable=False)
    wanted, prompts = _greedy(policy, samples), policy.prompts
    del policy
    for sample, answer in zip(samples, wanted, strict=True):
        plain = generate_plainly(hf, prompts, sample, num_tokens=NUM_TOKENS)
        if plain != answer:
            raise ModelError(
                f"export: transformers answers the prompt {sample.messages[-1].text!r} with "
                f"{prompts.decode(plain)!r} where the checkpoint gives {prompts.decode(answer)!r}; this version of "
                "transformers loads the weights otherwise than they were trained"
            )
    return len(samples)


def _check_scores(folder: Path, original: Path, samples: Sequence[Sample], store: ImageStore) -> int:
    def scores(path: Path) -> torch.Tensor:
        model = load_reward_model(_model_config(path), ImageConfig(), store=store)
        prompts = [model.body.prompts.prepare(sample) for sample in samples]
        with torch.no_grad():
            return model(prompts, [[model.body.prompts.encode_response("7")] for _ in samples])

    if not torch.equal(scores(folder), scores(original)):
        raise ModelError("export: the reward model gives other scores after loading again")
    return len(samples)


def _greedy(policy: PolicyModel, samples: Sequence[Sample]) -> list[list[int]]:
    rollout = HfRollout(policy, RolloutConfig())
    params = SamplingParams(NUM_TOKENS, temperature=0.0)
    groups = rollout.generate(samples, params, num_responses=1, seed=0, step=0)
    return [list(group.rollouts[0].token_ids) for group in groups]


def _model_config(folder: Path) -> ModelConfig:
    return ModelConfig(path=str(folder), dtype="float32")


def _sample(index: int, turns: list[tuple[Role, str, int]], store: ImageStore) -> Sample:
    messages = []
    for role, text, num_images in turns:
        images = [store.add(_picture(index + number)) for number in range(num_images)]
        parts = (*(ImagePart(image) for image in images), *((TextPart(text),) if text or not images else ()))
        messages.append(Message(role, parts))
    return Sample(f"probe-{index}", tuple(messages))


def _picture(seed: int) -> Image.Image:
    image = Image.new("RGB", (84 + 28 * (seed % 3), 112), (20 * seed % 256, 90, 160))
    image.paste((255, 255, 255), (10, 20 + seed % 30, 50, 70))
    return image


def _to_template(message: Message, *, sees_images: bool) -> dict[str, Any]:
    if not sees_images or not any(isinstance(part, ImagePart) for part in message.content):
        return {"role": message.role, "content": message.text}
    parts = [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}
        for part in message.content
    ]
    return {"role": message.role, "content": parts}
