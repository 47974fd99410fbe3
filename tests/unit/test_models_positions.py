import pytest
import torch
from models_builders import VISION_FAMILIES, mixed_samples

from mmrl.batch import PreparedImage, PreparedPrompt
from mmrl.models.families.qwen_vl import mrope_positions
from mmrl.types import ImageRef

PAD = 9


def image(rows: int, columns: int, frames: int = 1) -> PreparedImage:
    """rows and columns before merging by 2."""
    patches = torch.zeros(frames * rows * columns, 1)
    return PreparedImage(
        ImageRef("0" * 64, 1, 1), patches, (frames, rows, columns), frames * rows * columns // 4, (0, 0)
    )


def test_positions_of_text_and_two_images_worked_by_hand():
    # 2 words, an image of 1 x 3 merged patches, 1 word, an image of 2 x 2 merged patches, 1 word
    prompt = PreparedPrompt((1, 2, PAD, PAD, PAD, 3, PAD, PAD, PAD, PAD, 4), (image(2, 6), image(4, 4)))
    assert mrope_positions(prompt, PAD, 2).tolist() == [
        [0, 1, 2, 2, 2, 5, 6, 6, 6, 6, 8],
        [0, 1, 2, 2, 2, 5, 6, 6, 7, 7, 8],
        [0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8],
    ]


def test_text_counts_up_on_all_three_axes():
    assert mrope_positions(PreparedPrompt((5, 6, 7), ()), PAD, 2).tolist() == [[0, 1, 2]] * 3


def test_two_images_side_by_side_are_told_apart():
    prompt = PreparedPrompt((PAD,) * 8, (image(4, 4), image(4, 4)))
    assert mrope_positions(prompt, PAD, 2)[0].tolist() == [0] * 4 + [2] * 4


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_positions_equal_those_of_the_hf_model(tiny_policy, pictures, family):
    policy = tiny_policy(family, trainable=False)
    for one in mixed_samples(pictures)[1:]:
        prompt = policy.prompts.prepare(one)
        ids = torch.tensor([prompt.token_ids])
        expected, delta = policy.hf.model.get_rope_index(
            ids,
            mm_token_type_ids=(ids == policy.prompts.image_token_id).int(),
            image_grid_thw=torch.tensor([image.grid_thw for image in prompt.images]),
        )
        found = policy.family.positions(policy.hf, prompt)
        assert torch.equal(found, expected[:, 0])
        assert int(policy.prefill([prompt]).next_positions) == len(prompt) + int(delta)
