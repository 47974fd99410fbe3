"""Seconds a GRPO step and peak memory: mmrl against TRL's GRPOTrainer on the same model, images, batch and lengths.

Each runs in processes of its own, turn about: mmrl, TRL with one micro-batch size, mmrl, TRL with the next … TRL counts
at its fastest micro-batch size. Both are in float32 on two threads, with responses forced to the full length.

    python tests/benchmarks/grpo_step.py --image-px 224 --images 1 --prompts 16 --group 8 --new-tokens 64 --json
"""

from __future__ import annotations

import argparse
import json

from against_trl import Clock, as_text, child, compare, settings_of, timed
from one_step import LR, Stepper, full_length_reward, memory_settings, question, random_images


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image-px", type=int, default=224, help="side of the square images; 0 is text only")
    parser.add_argument("--images", type=int, default=1, help="images a prompt")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--model", choices=["tiny", "small"], default="small")
    parser.add_argument("--freeze", choices=["vision"], default=None, help="freeze the tower on both sides")
    parser.add_argument("--seen", action="store_true", help="repeat the images of the step before")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process, after one that is not")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--micro-batch-tokens", type=int, default=None, help="of mmrl")
    parser.add_argument("--kept-responses-mb", type=int, default=None, help="of mmrl")
    parser.add_argument("--trl-micro-batches", type=int, nargs="*", default=None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=["mmrl", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--micro-batch", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name, value in memory_settings(options.image_px).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main() -> None:
    options = parse()
    if options.side:
        side = run_mmrl if options.side == "mmrl" else run_trl
        print("RESULT " + json.dumps(side(options)))
        return
    report = compare_sides(options)
    print(json.dumps(report) if options.json else as_text(report))


def compare_sides(options: argparse.Namespace) -> dict:
    rows = options.prompts * options.group
    sizes = options.trl_micro_batches or sorted({size for size in (8, 32, rows) if size <= rows and rows % size == 0})
    names = ("image_px", "images", "prompts", "group", "new_tokens", "model", "steps", "threads")
    names += ("micro_batch_tokens", "kept_responses_mb")
    more = ["--freeze", options.freeze] if options.freeze else []
    more += ["--seen"] if options.seen else []

    def run_side(folder: str, side: str, size: int) -> dict:
        arguments = ["--side", side, "--micro-batch", str(size), *settings_of(options, names), *more]
        return child(__file__, options, folder, arguments)

    return compare(options, sizes, run_side)


def step_images(options: argparse.Namespace, step: int) -> list[list]:
    """Images of a step's prompts; with --seen those of step 0 again."""
    seed = 0 if options.seen else step
    return random_images(seed, prompts=options.prompts, images=options.images, px=options.image_px)


def run_mmrl(options: argparse.Namespace) -> dict:
    import torch

    torch.set_num_threads(options.threads)
    stepper = Stepper(
        f"{options.folder}/model",
        group=options.group,
        new_tokens=options.new_tokens,
        freeze=(options.freeze,) if options.freeze else (),
        total_steps=options.steps + 1,
        micro_batch_tokens=options.micro_batch_tokens,
        kept_responses_mb=options.kept_responses_mb,
    )
    clock, steps = Clock(), []
    for step in range(options.steps + 1):
        images = step_images(options, step)
        clock.start()
        steps.append(stepper.step(step, images))
        clock.stop()
    clock.seconds = [step.seconds for step in steps]
    parts = {"rollout": steps[-1].rollout_s, "update": steps[-1].update_s}
    return timed({"parts": parts}, clock)


def run_trl(options: argparse.Namespace) -> dict:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from datasets import Dataset

    torch.set_num_threads(options.threads)
    model = AutoModelForImageTextToText.from_pretrained(f"{options.folder}/model", dtype=torch.float32)
    model.generation_config.eos_token_id = None
    if options.freeze:
        model.model.visual.requires_grad_(False)
        model.model.visual.merger.requires_grad_(True)
    processor = AutoProcessor.from_pretrained(f"{options.folder}/model")
    rows = []
    for step in range(options.steps + 1):
        for index, images in enumerate(step_images(options, step)):
            row = {"prompt": [{"role": "user", "content": question(index)}]}
            rows.append(row | ({"images": images} if images else {}))
    clock = Clock()

    class Steps(TrainerCallback):
        def on_step_begin(self, *_, **__):
            clock.start()

        def on_step_end(self, *_, **__):
            clock.stop()

    batch = options.prompts * options.group
    config = GRPOConfig(
        output_dir=f"{options.folder}/trl",
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=batch // options.micro_batch,
        num_generations=options.group,
        max_completion_length=options.new_tokens,
        generation_kwargs={
            "min_new_tokens": options.new_tokens,
            "bad_words_ids": [
                [getattr(model.config, f"{name}_token_id")] for name in ("image", "video", "vision_start", "vision_end")
            ],
        },
        max_steps=options.steps + 1,
        learning_rate=LR,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        shuffle_dataset=False,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completion_ids, **_: [full_length_reward(ids) for ids in completion_ids],
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=processor,
        callbacks=[Steps()],
    )
    trainer.train()
    return timed({"micro_batch": options.micro_batch}, clock)


if __name__ == "__main__":
    main()
