from pathlib import Path

import pytest
import torch
from models_builders import FAMILIES
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from mmrl.models.tiny import build_tiny, build_tiny_qwen2_5_vl
from mmrl.models.tiny_tokenizer import SPECIAL_TOKENS, train_tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_a_folder_that_the_auto_classes_load(tiny_model, family):
    folder = tiny_model(family)
    auto = AutoModelForCausalLM if family == "qwen2" else AutoModelForImageTextToText
    model = auto.from_pretrained(folder)
    processor = AutoProcessor.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.model_type == family
    assert sum(weight.numel() for weight in model.parameters()) < 800_000
    assert processor.apply_chat_template([{"role": "user", "content": "hi"}], add_generation_prompt=True) is not None
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path, tiny_model):
    first = load_file(tiny_model("qwen2_5_vl") / "model.safetensors")
    again = load_file(build_tiny_qwen2_5_vl(tmp_path / "again") / "model.safetensors")
    other = load_file(build_tiny_qwen2_5_vl(tmp_path / "other", seed=1) / "model.safetensors")
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_building_leaves_the_callers_random_numbers_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    build_tiny("qwen2", tmp_path)
    assert torch.equal(torch.rand(2), expected)


def test_the_small_model_of_the_benchmarks_has_16_and_a_half_million_weights(tiny_model):
    model = AutoModelForImageTextToText.from_pretrained(tiny_model("qwen2_5_vl", size="small"))
    assert 16.4e6 < sum(weight.numel() for weight in model.parameters()) < 16.8e6
    assert (model.config.text_config.num_hidden_layers, model.config.vision_config.depth) == (6, 6)


def test_tied_embeddings_are_one_weight_after_loading(tiny_model):
    folder = tiny_model("qwen2_5_vl", tie_embeddings=True)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    assert model.lm_head.weight is model.model.language_model.embed_tokens.weight
    assert "lm_head.weight" not in load_file(Path(folder) / "model.safetensors")


def test_the_tokenizer_knows_every_byte_and_cuts_digits_apart():
    tokenizer = train_tokenizer(["the sum is 13"])
    text = "naïve 日本 ❤️ \t\x00 the sum is 1307"
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids) == text
    assert ids[-4:] == tokenizer.convert_tokens_to_ids(list("1307"))


def test_the_tokenizer_ends_with_the_special_tokens_in_order():
    tokenizer = train_tokenizer()
    first = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(first, len(tokenizer)))
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
