import numpy as np
import pytest
import torch
from PIL import Image
from qwen_vl_utils.vision_process import fetch_image
from transformers import AutoProcessor

from mmrl.config.run import ImageConfig
from mmrl.data.images import ImageStore
from mmrl.errors import DataError, ModelError
from mmrl.models.images import ImageLimits, ImagePreparer, limits_of
from mmrl.types import ImageRef

LIMITS = ImageLimits(factor=28, min_pixels=3136, max_pixels=12_845_056)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


def ref(width: int, height: int) -> ImageRef:
    return ImageRef("0" * 64, width, height)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (448, 448, 256),
        (1920, 1080, 2691),
        (2968, 1596, 6042),
        (26, 28, 6),  # V01: sides under one patch block
        (332, 27, 12),
        (100, 1, 4),  # V02: one pixel high
        (1, 1, 4),
        (200, 1, 7),  # V03: at the ceiling of the aspect ratio
    ],
)
def test_image_tokens_follow_the_reference_resizing(width, height, tokens):
    assert LIMITS.num_tokens(ref(width, height)) == tokens


def test_an_aspect_ratio_over_200_is_refused_with_the_ratio():
    with pytest.raises(DataError, match=r"201x1 pixels has an aspect ratio of 201\.0; at most 200"):
        LIMITS.size(ref(201, 1))


def test_a_narrow_image_keeps_at_least_one_block_when_it_is_shrunk():
    limits = ImageLimits(factor=28, min_pixels=784, max_pixels=12_544)
    width, height = limits.size(ref(690, 69_000))
    assert width == 28
    assert height % 28 == 0
    assert limits.size(ref(690, 15_420)) == (28, 504)  # V05: one resize, never below a block


@pytest.mark.parametrize("size", [(56, 56), (300, 200), (26, 28), (100, 1), (2000, 900)])
def test_pixels_equal_those_of_fetch_image(tmp_path, tiny_model, size):
    store = ImageStore(tmp_path)
    image = noise(*size)
    processor = AutoProcessor.from_pretrained(tiny_model("qwen2_5_vl")).image_processor
    limits = limits_of(processor, ImageConfig(max_pixels=200_000))
    prepared = ImagePreparer(processor, store, limits).prepare(store.add(image))
    fetched = fetch_image({"image": image, "min_pixels": 3136, "max_pixels": 200_000}, image_patch_size=14)
    expected = processor(images=[fetched], do_resize=False, return_tensors="pt")
    assert torch.equal(prepared.pixel_values, expected["pixel_values"])
    assert prepared.grid_thw == tuple(expected["image_grid_thw"][0].tolist())
    assert prepared.processed_size == fetched.size
    assert prepared.num_tokens == prepared.pixel_values.shape[0] // 4


def test_limits_are_the_processors_narrowed_by_the_config(tiny_model):
    processor = AutoProcessor.from_pretrained(tiny_model("qwen3_vl")).image_processor
    limits = limits_of(processor, ImageConfig(min_pixels=100, max_pixels=50_000))
    assert limits == ImageLimits(factor=32, min_pixels=4096, max_pixels=50_000)


def test_limits_that_leave_nothing_are_refused(tiny_model):
    processor = AutoProcessor.from_pretrained(tiny_model("qwen2_5_vl")).image_processor
    with pytest.raises(ModelError, match=r"100 to 3000 pixels leaves nothing .* 3136 to 12845056"):
        limits_of(processor, ImageConfig(min_pixels=100, max_pixels=3000))


def test_pixels_are_kept_up_to_the_bound_and_the_oldest_leave_first(tmp_path, tiny_model):
    store = ImageStore(tmp_path)
    processor = AutoProcessor.from_pretrained(tiny_model("qwen2_5_vl")).image_processor
    one_image = 16 * 1176 * 4
    preparer = ImagePreparer(processor, store, LIMITS, cache_bytes=2 * one_image)
    refs = [store.add(noise(56, 56 - index)) for index in range(3)]
    first, second = preparer.prepare(refs[0]), preparer.prepare(refs[1])
    assert preparer.prepare(refs[0]) is first
    preparer.prepare(refs[2])
    assert preparer.prepare(refs[0]) is first
    assert preparer.prepare(refs[1]) is not second


def test_other_limits_make_another_image(tmp_path, tiny_model):
    store = ImageStore(tmp_path)
    processor = AutoProcessor.from_pretrained(tiny_model("qwen2_5_vl")).image_processor
    preparer = ImagePreparer(processor, store, LIMITS)
    reference = store.add(noise(224, 224))
    assert preparer.prepare(reference).num_tokens == 64
    assert preparer.prepare(reference, LIMITS.below(28 * 28 * 16)).num_tokens == 16
    assert LIMITS.below(1) == ImageLimits(factor=28, min_pixels=784, max_pixels=784)
