"""A run of a million responses on disk, as the trainer and the worker's index leave it, for benchmarks.

One step is made of records; the others are the same rows under other steps, prompts and rewards, written as columns,
so that it takes a minute and not an hour. Only the last steps keep what is per token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from home_runs import RunInHome, grpo_job, shape_samples
from job_rows import join

from mmrl.data.images import ImageStore
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.runs.images import keep_image
from mmrl.runs.shards import ROWS_PER_ROW_GROUP, TOKEN_COLUMNS
from mmrl.types import Sample

NUM_STEPS = 500
NUM_GROUPS = 250
GROUP_SIZE = 8
NUM_IMAGES = 250
NUM_EPOCHS = 10
"""A prompt comes so often in all."""
NUM_TOKENS = 128


def add_large_run(database: Database, *, num_steps: int = NUM_STEPS) -> str:
    """Gives the job's id. num_steps x 250 groups x 8 responses, with the images of 250 prompts."""
    store = ImageStore()
    samples = shape_samples(store, NUM_IMAGES, seed=3)
    job = Jobs(database).submit(grpo_job("million"))
    run = RunInHome(database, join(database, cpus=64), Jobs(database).get(job.id), samples=samples)
    run.train(10)
    for sample in samples:
        for image in sample.images:
            keep_image(run.run_dir, image.sha256, store.path(image))
    folder = run.run_dir / "attempt-1" / "samples"
    template = pq.read_table(folder / "train-000010.parquet")
    for step in range(1, num_steps + 1):
        has_tokens = step > num_steps - 5
        table = _step(template, step, samples, has_tokens=has_tokens)
        path = folder / f"train-{step:06d}.parquet"
        pq.write_table(table, path, row_group_size=ROWS_PER_ROW_GROUP, compression="zstd")
    run.index()
    return job.id


def _step(template: pa.Table, step: int, samples: Sequence[Sample], *, has_tokens: bool) -> pa.Table:
    num = NUM_GROUPS * GROUP_SIZE
    draw = np.random.default_rng(step)
    groups = np.repeat(np.arange(NUM_GROUPS), GROUP_SIZE)
    epoch = max(1, NUM_STEPS // NUM_EPOCHS)
    prompts = [f"prompt-{(step - 1) % epoch:03d}-{group:03d}" for group in groups]
    right = draw.random(num) < 0.2 + 0.6 * step / NUM_STEPS
    words = draw.integers(0, 1000, (num, 40))
    texts = [
        f"{' '.join(f'word{word}' for word in row)} \\boxed{{{'red' if is_right else 'grey'}}}"
        for row, is_right in zip(words, right, strict=True)
    ]
    shared = [_prompt(samples[group % len(samples)]) for group in groups]
    totals = right + 0.2
    by_group = totals.reshape(NUM_GROUPS, GROUP_SIZE)
    columns: dict[str, Any] = {
        "step": np.full(num, step),
        "policy_version": np.full(num, step),
        "prompt_id": prompts,
        "group_id": groups,
        "sample_idx": np.tile(np.arange(GROUP_SIZE), NUM_GROUPS),
        "messages": [messages for messages, _ in shared],
        "images": [images for _, images in shared],
        "response": texts,
        "reward_total": totals,
        "reward_parts": [_parts(is_right) for is_right in right],
        "advantage": (by_group - by_group.mean(1, keepdims=True)).ravel(),
        "group_mean": np.repeat(by_group.mean(1), GROUP_SIZE),
        "group_std": np.repeat(by_group.std(1, ddof=1), GROUP_SIZE),
        "length": draw.integers(20, 400, num),
        "finish_reason": np.where(draw.random(num) < 0.05, "length", "stop"),
    }
    tokens = _tokens(draw, num) if has_tokens else dict.fromkeys(TOKEN_COLUMNS)
    own = template.take(pa.array(np.zeros(num, dtype=np.int64)))
    for name, values in (columns | tokens).items():
        field = own.schema.field(name)
        array = pa.nulls(num, field.type) if values is None else pa.array(values, type=field.type, from_pandas=True)
        own = own.set_column(own.schema.get_field_index(name), field, array)
    return own


def _prompt(sample: Sample) -> tuple[str, list[dict[str, Any]]]:
    from mmrl.data.serialise import messages_to_json

    images = [{"sha256": image.sha256, "width": image.width, "height": image.height} for image in sample.images]
    return json.dumps(messages_to_json(sample.messages)), images


def _parts(is_right: bool) -> list[dict[str, Any]]:
    empty = {"error": None, "ms": 0.1, "scaled": None, "vetoes": None, "extras": None}
    exact = {"name": "exact", "value": float(is_right), "weight": 1.0, "extracted": "red" if is_right else "grey"}
    form = {"name": "format", "value": 1.0, "weight": 0.2, "extracted": None, "explanation": "it has a box"}
    return [{**empty, **exact, "explanation": "the colour of the shape"}, {**empty, **form}]


def _tokens(draw: np.random.Generator, num: int) -> dict[str, Any]:
    logprobs = list(-draw.exponential(0.4, (num, NUM_TOKENS)).astype(np.float32))
    found: dict[str, Any] = dict.fromkeys(("logprobs", "actor_logprobs", "reference_logprobs", "entropy"), logprobs)
    found["token_ids"] = list(draw.integers(0, 100, (num, NUM_TOKENS)).astype(np.int32))
    found["response_mask"] = [[True] * NUM_TOKENS] * num
    return found


def add_large_panel(home: Path, *, num_prompts: int = 200, num_checkpoints: int = 20) -> None:
    """A panel of 200 prompts that 20 checkpoints answered four times each: 16,000 responses."""
    from dataclasses import replace

    from evaluation_builders import SETTINGS, evaluated

    from mmrl.evaluation.panels import panel_of, save_panel

    store = ImageStore()
    samples = shape_samples(store, num_prompts, seed=5)
    panel = panel_of(samples, replace(SETTINGS, samples_per_prompt=4, ks=(1, 2, 4)), name="shapes-large")
    save_panel(panel, store)
    for number in range(num_checkpoints):
        draw = np.random.default_rng(number)
        answers = [
            tuple(str(sample.answer) if draw.random() < number / num_checkpoints else "grey" for _ in range(4))
            for sample in samples
        ]
        evaluated(panel, 20 * number, *answers, run=home / "runs" / "large-panel")
