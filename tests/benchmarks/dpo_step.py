"""Seconds a DPO step and peak memory: mmrl against TRL's DPOTrainer on the same model, images and answers.

Each runs in processes of its own, turn about: mmrl, TRL with one micro-batch size, mmrl, TRL with the next … TRL counts
at its fastest micro-batch size. Both are in float32 on two threads, on pairs that are new in every step, and both
compute what the reference makes of them within the step: mmrl with the one model that it holds at a run's begin, TRL
with its second model.

    python tests/benchmarks/dpo_step.py --image-px 448 --prompts 4 --answer-tokens 32 --json
"""

from __future__ import annotations

import argparse
import json
import random

from against_trl import Clock, as_text, child, compare, settings_of, timed
from one_step import LR, MICRO_BATCH_TOKENS, question, random_images


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image-px", type=int, default=448, help="side of the square images; 0 is text only")
    parser.add_argument("--prompts", type=int, default=4, help="pairs in a step")
    parser.add_argument("--answer-tokens", type=int, default=32, help="words of the longer answers, about their tokens")
    parser.add_argument("--model", choices=["tiny", "small"], default="small")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process, after one that is not")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trl-micro-batches", type=int, nargs="*", default=None, help="in pairs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=["mmrl", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--micro-batch", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.side:
        side = run_mmrl if options.side == "mmrl" else run_trl
        print("RESULT " + json.dumps(side(options)))
        return
    report = compare_sides(options)
    print(json.dumps(report) if options.json else as_text(report))


def compare_sides(options: argparse.Namespace) -> dict:
    sizes = options.trl_micro_batches or [size for size in (1, 2, 4, 8) if options.prompts % size == 0]
    names = ("image_px", "prompts", "answer_tokens", "model", "steps", "threads")

    def run_side(folder: str, side: str, size: int) -> dict:
        arguments = ["--side", side, "--micro-batch", str(size), *settings_of(options, names)]
        return child(__file__, options, folder, arguments)

    return compare(options, sizes, run_side)


def step_answers(options: argparse.Namespace, step: int) -> list[tuple[str, str]]:
    """A chosen and a rejected answer to each prompt, of other lengths."""
    draw = random.Random(step)

    def words() -> str:
        count = draw.randint(options.answer_tokens // 2, options.answer_tokens)
        return " ".join(str(draw.randint(0, 9)) for _ in range(max(count // 2, 1)))

    return [(words(), words()) for _ in range(options.prompts)]


def run_mmrl(options: argparse.Namespace) -> dict:
    import torch

    from mmrl.algorithms.preferences import build_preference
    from mmrl.config.preference import DpoConfig
    from mmrl.config.run import ImageConfig, ModelConfig, OptimConfig, TrainConfig
    from mmrl.data.images import ImageStore
    from mmrl.data.normalise import make_sample
    from mmrl.data.serialise import messages_to_json
    from mmrl.engines.actor import HfActor
    from mmrl.models.policy import load_policy
    from mmrl.trainer.answers import AnswerBatches
    from mmrl.types import ImagePart, Message, TextPart

    torch.set_num_threads(options.threads)
    store = ImageStore()
    config = ModelConfig(path=f"{options.folder}/model", dtype="float32")
    policy = load_policy(config, ImageConfig(), store=store)
    train = TrainConfig(micro_batch_tokens=MICRO_BATCH_TOKENS)
    actor = HfActor(policy, OptimConfig(lr=LR), train, temperature=1.0, total_steps=options.steps + 1)
    preference = build_preference(DpoConfig())
    answers = AnswerBatches(policy.prompts)

    def said(text: str) -> list[dict]:
        return messages_to_json([Message("assistant", (TextPart(text),))])

    def one_step(step: int, clock: Clock) -> None:
        images = random_images(step, prompts=options.prompts, images=1, px=options.image_px)
        samples = []
        for index, (of_prompt, (chosen, rejected)) in enumerate(zip(images, step_answers(options, step), strict=True)):
            content = (*(ImagePart(store.add(image)) for image in of_prompt), TextPart(question(index)))
            marks = {"chosen": said(chosen), "rejected": said(rejected)}
            samples.append(make_sample((Message("user", content),), None, marks))
        clock.start()
        batch = answers.pairs(samples)
        batch = batch.with_(reference_logprobs=actor.logprobs(batch).logprobs)
        actor.train_step(batch, preference.objective(batch))
        clock.stop()

    clock = Clock()
    for step in range(options.steps + 1):
        one_step(step, clock)
    return timed({}, clock)


def run_trl(options: argparse.Namespace) -> dict:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback
    from trl import DPOConfig, DPOTrainer

    from datasets import Dataset

    torch.set_num_threads(options.threads)
    folder = f"{options.folder}/model"
    rows = []
    for step in range(options.steps + 1):
        images = random_images(step, prompts=options.prompts, images=1, px=options.image_px)
        for index, (of_prompt, (chosen, rejected)) in enumerate(zip(images, step_answers(options, step), strict=True)):
            row = {
                "prompt": [{"role": "user", "content": question(index)}],
                "chosen": [{"role": "assistant", "content": chosen}],
                "rejected": [{"role": "assistant", "content": rejected}],
            }
            rows.append(row | ({"images": of_prompt} if of_prompt else {}))
    clock = Clock()

    class Steps(TrainerCallback):
        def on_step_begin(self, *_, **__):
            clock.start()

        def on_step_end(self, *_, **__):
            clock.stop()

    config = DPOConfig(
        output_dir=f"{options.folder}/trl",
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=options.prompts // options.micro_batch,
        max_steps=options.steps + 1,
        learning_rate=LR,
        max_length=None,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = DPOTrainer(
        model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
        ref_model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoProcessor.from_pretrained(folder),
        callbacks=[Steps()],
    )
    trainer.train()
    return timed({"micro_batch": options.micro_batch}, clock)


if __name__ == "__main__":
    main()
