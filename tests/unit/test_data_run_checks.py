"""A run's config against data: exact lengths, images, batches, and answers that their rewards cannot read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_files import encoded, red_png, write_jsonl
from models_builders import sample, turn, user
from PIL import Image

from mmrl.config import RunConfig
from mmrl.config.run import DataConfig, ImageConfig
from mmrl.data.images import ImageStore
from mmrl.data.ingest import validate
from mmrl.data.mixture import MixPart, Mixture
from mmrl.errors import DataError, NotFoundError
from mmrl.models.loading import load_prompts
from mmrl.models.processing import PromptProcessor
from mmrl.trainer.data_checks import checks_of
from mmrl.trainer.fitting import fit, fit_prompts
from mmrl.trainer.preview import Previewer
from mmrl.trainer.run_data import RunData, check_data, load_data, part_names
from mmrl.types import Sample


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def processor(tiny_model: Callable[..., Path]) -> PromptProcessor:
    return load_prompts(str(tiny_model()), ImageConfig(max_pixels=12_845_056), store=ImageStore())


def config(model: Path, train: Any, **changes: Any) -> RunConfig:
    plain: dict[str, Any] = {
        "name": "t",
        "model": {"path": str(model), "dtype": "float32", "device": "cpu"},
        "data": {"train": train, **changes.pop("data", {})},
        "reward": [{"type": "exact"}],
        "rollout": {"prompts_per_step": 2, "max_response_tokens": 4},
        "algorithm": {"group_size": 2},
        "train": {"steps": 1},
        **changes,
    }
    return RunConfig.model_validate(plain)


def shade(width: int, height: int) -> Image.Image:
    return Image.linear_gradient("L").resize((width, height)).convert("RGB")


def with_images(*sizes: tuple[int, int], text: str = "What?") -> Sample:
    store = ImageStore()
    return sample(user(*[store.add(shade(*size)) for size in sizes], text))


def limit(max_prompt_tokens: int, on_overlong: str = "drop") -> DataConfig:
    return DataConfig.model_validate({"train": "t", "max_prompt_tokens": max_prompt_tokens, "on_overlong": on_overlong})


def test_v06_the_length_counts_images_expanded_and_the_policy_decides(processor: PromptProcessor) -> None:
    long = with_images((1920, 1080))
    short = sample(user("What?"))
    text = processor.num_tokens(short)
    assert processor.num_tokens(long) == text + 2 + 2691
    with pytest.raises(DataError, match=r"longest has \d+ tokens .*sample sample.*max_pixels"):
        fit([long, short], processor, limit(1024, "error"), what="data.train")
    dropped = fit([long, short], processor, limit(1024), what="data.train")
    assert (list(dropped.kept), dropped.num_long, dropped.num_dropped) == ([short], 1, 1)
    resized = fit([long, short], processor, limit(1024, "resize"), what="data.train")
    assert (resized.num_resized, resized.num_dropped) == (1, 0)
    assert 900 < len(processor.prepare(resized.kept[0])) <= 1024


def test_v07_v08_v09_no_prompt_is_ever_cut(processor: PromptProcessor) -> None:
    """Whatever the limit, a prompt keeps all of its images with all of their tokens, or is left out whole."""
    store = ImageStore()
    shown = [store.add(shade(560, 504)) for _ in range(5)]
    two = sample(user(shown[0], "and", shown[1]))
    dialogue = sample(*[part for one in shown for part in (user(one, "?"), turn("assistant", "Yes."))][:-1])
    assert processor.prepare(two).images[0].num_tokens == 360
    for one in (two, dialogue):
        whole = processor.num_tokens(one)
        for max_tokens in (whole, whole - 1, whole * 3 // 5, 100):
            for policy in ("drop", "resize"):
                kept = fit([one, sample(user("?"))], processor, limit(max_tokens, policy), what="x").kept
                for each in kept:
                    prepared = processor.prepare(each)
                    slots = prepared.token_ids.count(processor.image_token_id)
                    assert slots == sum(image.num_tokens for image in prepared.images)
                    assert len(prepared.images) == len(each.images)
                    assert len(prepared) == processor.num_tokens(each) <= max_tokens
    assert len(fit([two], processor, limit(processor.num_tokens(two)), what="x").kept) == 1


def test_v09_positions_are_as_long_as_the_ids(tiny_policy: Callable[..., Any], pictures: Any) -> None:
    policy = tiny_policy()
    prepared = policy.prompts.prepare(sample(user(pictures[2], "a", pictures[1], "b")))
    assert policy.family.positions(policy.hf, prepared).shape == (3, len(prepared))


def test_v11_four_images_at_the_limit_are_taken_by_their_true_length(processor: PromptProcessor) -> None:
    four = with_images((448, 448), (448, 448), (300, 200), (56, 56))
    length = len(processor.prepare(four))
    assert length == processor.num_tokens(four)
    assert fit([four], processor, limit(length), what="x").num_long == 0
    with pytest.raises(DataError, match=f"all 1 prompts are longer than data.max_prompt_tokens {length - 1}"):
        fit([four], processor, limit(length - 1), what="x")


@pytest.mark.parametrize(
    ("size", "tokens"), [((26, 28), 6), ((332, 27), 12), ((100, 1), 4), ((1, 1), 4), ((200, 1), 7)]
)
def test_v01_v02_v03_thin_images_are_counted_previewed_and_prepared_alike(
    processor: PromptProcessor, size: tuple[int, int], tokens: int
) -> None:
    one = with_images(size)
    preview = Previewer(processor, max_prompt_tokens=None, resizes=False)(one)
    prepared = processor.prepare(one)
    assert preview.images[0].tokens == prepared.images[0].num_tokens == tokens
    assert preview.prompt_tokens == len(prepared) == processor.num_tokens(one)
    assert prepared.images[0].pixel_values.shape[0] == 4 * tokens


def test_v03_an_aspect_ratio_over_200_is_an_error_of_its_row(tmp_path: Path) -> None:
    (tmp_path / "thin.png").write_bytes(encoded(Image.new("RGB", (201, 1))))
    path = write_jsonl(tmp_path / "a.jsonl", {"prompt": "<image>?", "images": ["thin.png"]})
    (error,) = validate(path).errors
    assert (error.row, error.field) == (1, "images[0]")
    assert "201x1, an aspect ratio of 201; vision-language models take at most 200" in error.message


def test_v05_a_very_tall_image_is_resized_once_and_keeps_a_block(tiny_model: Callable[..., Path]) -> None:
    narrow = load_prompts(str(tiny_model()), ImageConfig(min_pixels=784, max_pixels=12_544), store=ImageStore())
    (image,) = narrow.prepare(with_images((690, 15_420))).images
    assert image.processed_size == (28, 504)
    assert image.num_tokens == 18


def test_d26_a_model_of_patch_16_is_counted_by_its_own_processor(tiny_model: Callable[..., Path]) -> None:
    own = load_prompts(str(tiny_model("qwen3_vl")), ImageConfig(), store=ImageStore())
    other = load_prompts(str(tiny_model("qwen2_5_vl")), ImageConfig(), store=ImageStore())
    borderline = with_images((448, 448))
    assert len(own.prepare(borderline)) == own.num_tokens(borderline)
    assert own.prepare(borderline).images[0].num_tokens == 14 * 14
    assert other.prepare(borderline).images[0].num_tokens == 16 * 16
    assert fit([borderline], own, limit(own.num_tokens(borderline)), what="x").num_long == 0


def test_d27_lengths_reuse_what_was_rendered(processor: PromptProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    one = with_images((56, 56))
    length = processor.num_tokens(one)
    monkeypatch.setattr(processor, "_template_ids", None)
    assert processor.num_tokens(one) == length


def test_d24_more_images_than_the_limit_are_refused_before_the_run(tiny_model: Callable[..., Path]) -> None:
    rows = [with_images(*[(56, 56)] * count) for count in (1, 3, 4, 5)]
    run = config(tiny_model(), "x", data={"max_images": 4})
    with pytest.raises(DataError, match=r"1 of 4 prompts have more images than data.max_images 4 allows; the most, 5"):
        check_data(run, RunData(rows, []))
    check_data(config(tiny_model(), "x", data={"max_images": 5}), RunData(rows, []))


def test_d29_fewer_rows_than_a_batch_are_refused_with_both_numbers(tiny_model: Callable[..., Path]) -> None:
    run = config(tiny_model(), "x", rollout={"prompts_per_step": 8})
    with pytest.raises(DataError, match=r"x has 6 samples, fewer than one batch of 8 \(rollout.prompts_per_step\)"):
        check_data(run, RunData([sample(user(str(index))) for index in range(6)], []))


def test_d31_a_misnamed_column_is_refused_with_the_columns_and_the_nearest(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", {"problm": "1+1?", "answer": "2"}, {"problm": "1+2?", "answer": "3"})
    with pytest.raises(DataError) as caught:
        load_data(config(tiny_model(), str(path)))
    assert "2 of 2 rows cannot be used" in str(caught.value)
    assert "columns are problm, answer" in str(caught.value)
    assert "'problm'" in str(caught.value)
    with pytest.raises(NotFoundError, match=r"a\.jsonl"):
        load_data(config(tiny_model(), str(tmp_path / "b.jsonl")))


def test_several_data_sets_keep_their_weights_through_the_limit(
    tiny_model: Callable[..., Path], tmp_path: Path, processor: PromptProcessor
) -> None:
    for name, count in (("a", 4), ("b", 3)):
        write_jsonl(tmp_path / f"{name}.jsonl", *[{"prompt": f"{name} {n}", "answer": "1"} for n in range(count)])
    parts = [{"name": str(tmp_path / "a.jsonl"), "weight": 3}, {"name": str(tmp_path / "b.jsonl")}]
    data = load_data(config(tiny_model(), parts))
    kept = fit_prompts(data.train, processor, limit(200), what="data.train")
    assert isinstance(kept, Mixture)
    assert [(part.name, len(part.samples), part.weight) for part in kept.parts] == [
        ("a.jsonl", 4, 3.0), ("b.jsonl", 3, 1.0),
    ]  # fmt: skip


def test_data_sets_of_one_file_name_are_told_apart_by_their_paths() -> None:
    assert part_names(["/d/a/train.jsonl", "/d/b/train.jsonl"]) == ["/d/a/train.jsonl", "/d/b/train.jsonl"]
    assert part_names(["geo@train", "/d/b/train.jsonl"]) == ["geo@train", "train.jsonl"]


def test_a_part_of_which_nothing_fits_is_named(processor: PromptProcessor) -> None:
    parts = Mixture((MixPart("short", [sample(user("x"))]), MixPart("long", [sample(user("many words " * 90))])))
    with pytest.raises(DataError, match=r"data\.train \(long\): all 1 prompts are longer"):
        fit(parts, processor, limit(60), what="data.train")


def test_answers_are_tried_and_prompts_counted_row_by_row(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(red_png())
    path = write_jsonl(
        tmp_path / "a.jsonl",
        {"prompt": "1+1?", "answer": "2"},
        {"prompt": "Which?", "answer": ""},
        {"prompt": "<image>" * 3, "images": ["a.png"] * 3, "answer": "3"},
        {"prompt": "word " * 200, "answer": "4"},
    )
    run = config(tiny_model(), "x", data={"max_images": 2, "max_prompt_tokens": 150})
    with checks_of(run) as checks:
        survey = validate(path, checks=checks.all)
        warnings = survey.warnings()
    assert [(fault.row, fault.field) for fault in survey.faults] == [(2, "answer"), (3, "images")]
    assert "has 3 images, data.max_images allows 2" in survey.faults[1].message
    assert (survey.num_rows, survey.num_valid) == (4, 2)
    assert "train: 1 row(s) are longer than data.max_prompt_tokens 150 and are left out (row 4)" in warnings
    assert checks.tokens.to_json()["over_limit"] == 1
    assert checks.rewards is not None
    assert checks.rewards.to_json() == {"answers_tried": 4, "unscorable": 1}


def test_rows_over_the_limit_are_errors_where_the_run_would_stop(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", {"prompt": "word " * 200, "answer": "4"})
    run = config(tiny_model(), "x", data={"max_prompt_tokens": 150, "on_overlong": "error"})
    with checks_of(run) as checks:
        (error,) = validate(path, checks=checks.all).errors
    assert (error.row, error.field) == (1, "prompt")
    assert "tokens with its images expanded, data.max_prompt_tokens is 150" in error.message
