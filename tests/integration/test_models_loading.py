import json
import shutil

import pytest
import torch
from models_builders import sample, user
from safetensors.torch import load_file, save_file

from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.errors import ModelError, NotFoundError
from mmrl.models.loading import load_policy


@pytest.fixture
def folder(tiny_model, tmp_path):
    """A copy of the tiny Qwen2.5-VL to be spoilt."""
    return shutil.copytree(tiny_model("qwen2_5_vl"), tmp_path / "model")


@pytest.fixture
def load(image_store):
    def from_path(path, **settings):
        return load_policy(ModelConfig(path=str(path), device="cpu", **settings), ImageConfig(), store=image_store)

    return from_path


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_missing_folder_is_not_found(load, tmp_path):
    with pytest.raises(NotFoundError, match=r"absent: no such folder"):
        load(tmp_path / "absent")


def test_a_hub_name_that_was_never_downloaded_says_that_the_hub_is_off(load, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotFoundError, match=r"neither a folder here nor available from the hub .*HF_HUB_OFFLINE"):
        load("nobody/no-such-model")


@pytest.mark.parametrize(
    ("removed", "lacking"),
    [
        (["processor_config.json"], "an image processor (preprocessor_config.json or processor_config.json)"),
        (["tokenizer.json"], "a tokenizer (tokenizer.json or vocab.json or tokenizer.model)"),
        (["model.safetensors"], "weights (*.safetensors or *.bin)"),
        (["processor_config.json", "tokenizer.json"], "an image processor (preprocessor_config.json"),
    ],
)
def test_a_folder_without_some_files_is_refused_by_their_names(load, folder, removed, lacking):
    for name in removed:
        (folder / name).unlink()
    with pytest.raises(ModelError) as error:
        load(folder)
    assert f"has no {lacking}" in str(error.value)
    assert "copy the missing files" in str(error.value)


def test_a_folder_without_a_template_is_refused(load, folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        load(folder)


def test_a_folder_without_a_config_is_refused(load, folder):
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=str(folder)):
        load(folder)


def test_a_damaged_config_is_refused(load, folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=str(folder)):
        load(folder)


def test_an_unknown_family_is_refused_with_the_known_ones(load, folder):
    edit_config(folder, model_type="llava", architectures=["LlavaForConditionalGeneration"])
    with pytest.raises(ModelError, match=r"'llava' is not supported; supported are qwen2_vl, qwen2_5_vl, qwen3_vl"):
        load(folder)


def test_sliding_windows_are_refused(load, folder):
    config = json.loads((folder / "config.json").read_text())
    layers = ["full_attention", "sliding_attention"]
    edit_config(folder, text_config=config["text_config"] | {"layer_types": layers})
    with pytest.raises(ModelError, match="layers of type full_attention, sliding_attention; only full attention"):
        load(folder)


def test_missing_weights_are_refused(load, folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are missing from its files, such as .*norm\.weight"):
        load(folder)


def test_cuda_is_refused_where_there_is_none(tiny_model, image_store, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = ModelConfig(path=str(tiny_model("qwen2")), device="cuda")
    with pytest.raises(ModelError, match="no GPU is available"):
        load_policy(config, ImageConfig(), store=image_store)


def test_no_sampling_default_comes_from_the_checkpoint(load, folder):
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text()) | {"repetition_penalty": 1.1, "top_k": 5, "do_sample": True}
    path.write_text(json.dumps(settings))
    policy = load(folder)
    kept = policy.hf.generation_config.to_diff_dict()
    assert kept.keys() <= {"eos_token_id", "pad_token_id", "transformers_version"}
    assert policy.end_token_ids == set(settings["eos_token_id"])


def test_loading_draws_nothing_from_the_callers_random_numbers(load, tiny_model):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load(tiny_model("qwen2"))
    assert torch.equal(torch.rand(2), expected)


def test_a_folder_in_the_hubs_older_layout_loads(load, folder, tiny_model):
    """preprocessor_config.json with pixel limits, a template in tokenizer_config.json, a flat config.json."""
    processor = json.loads((folder / "processor_config.json").read_text())
    images = {name: value for name, value in processor["image_processor"].items() if name != "size"}
    limits = {"min_pixels": 3136, "max_pixels": 12_845_056, "processor_class": "Qwen2_5_VLProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(images | limits))
    (folder / "processor_config.json").unlink()
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    template = (folder / "chat_template.jinja").read_text()
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"chat_template": template}))
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    text.pop("model_type")
    rope = text.pop("rope_parameters")
    flat = {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    (folder / "config.json").write_text(json.dumps(text | config | flat))
    policy, expected = load(folder), load(tiny_model("qwen2_5_vl"))
    assert policy.prompts.images.limits == expected.prompts.images.limits
    prompt = sample(user("12 + 34?"))
    assert policy.prompts.prepare(prompt).token_ids == expected.prompts.prepare(prompt).token_ids
    hidden = [one.prefill([one.prompts.prepare(prompt)]).last_hidden for one in (policy, expected)]
    assert torch.equal(*hidden)


@pytest.mark.parametrize(
    "shard", ["../other.safetensors", "/etc/other.safetensors", "C:\\other.safetensors", "a/../../b"]
)
def test_x11_a_shard_index_that_points_outside_its_folder_is_refused(load, folder, shard):
    weights = load_file(folder / "model.safetensors")
    save_file(weights, folder.parent / "other.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, shard)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model.safetensors.index.json: names the shard .* leads out of the model's"):
        load(folder)


def test_x11_a_shard_index_inside_its_folder_loads_and_a_damaged_one_is_refused(load, folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, "model-00001-of-00001.safetensors")})
    )
    assert load(folder).hf is not None
    index.write_text("[]")
    with pytest.raises(ModelError, match="no index of shards that can be read"):
        load(folder)


class TouchesMarker:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def test_x04_weights_in_a_pickle_that_runs_code_are_refused_and_nothing_runs(load, folder, tmp_path):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": TouchesMarker(tmp_path / "marker")}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="a pickle that holds more than tensors"):
        load(folder)
    assert not (tmp_path / "marker").exists()
