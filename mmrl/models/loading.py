"""From a model folder (or a name on the hub) to a `PolicyModel`, with an error that says what a folder lacks."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from accelerate import init_empty_weights
from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoProcessor, AutoTokenizer, GenerationConfig

from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ModelError, NotFoundError
from mmrl.models.attention import ATTENTION
from mmrl.models.families import Family, family_for
from mmrl.models.freezing import apply_freeze
from mmrl.models.lora import add_adapter
from mmrl.models.policy_model import PolicyModel
from mmrl.models.processing import PromptProcessor
from mmrl.models.quiet import without_progress_bars
from mmrl.models.vocabulary import check_vocabulary

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}

_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_WEIGHT_FILES = ("*.safetensors", "*.bin")


def load_policy(
    config: ModelConfig, image: ImageConfig, *, store: ImageStore, trainable: bool = True, seed: int = 0
) -> PolicyModel:
    """The model of `config.path` with its processor, on its device, its weights in float32 (float64 if asked for).

    image: limits of image size. store: where the images of samples lie.
    trainable: False gives a model without any trainable weight; else `config.freeze` decides.
    seed: of whatever is drawn at random while loading.
    Raises NotFoundError for a missing folder, ModelError for one that is incomplete or of an unknown family.
    """
    hf_config, family, processor = _read_folder(config.path)
    with torch.random.fork_rng(devices=[]), without_progress_bars():
        torch.manual_seed(seed)
        hf = _load_weights(config.path, family, hf_config, _weights_dtype(config))
    generation_config = getattr(hf, "generation_config", None)
    hf.generation_config = _without_sampling_defaults(generation_config)
    prompts = PromptProcessor(
        processor, config=hf_config, generation_config=generation_config, store=store, image=image
    )
    family.adapt(hf)
    hf.to(_device(config.device))
    policy = PolicyModel(hf, family, prompts, dtype=_DTYPES[config.dtype])
    _make_trainable(policy, config) if trainable else policy.requires_grad_(False)
    return policy


def load_empty(
    config: ModelConfig, image: ImageConfig, *, store: ImageStore, device: torch.device, trainable: bool = True
) -> PolicyModel:
    """`load_policy` without reading a weight: they lie on the meta device, and whoever calls fills them in.

    What is computed and not learned, such as rotary frequencies, is there, on the CPU.
    device: where the passes will be computed.
    """
    hf_config, family, processor = _read_folder(config.path)
    generation_config = _generation_config(config.path, hf_config)
    prompts = PromptProcessor(
        processor, config=hf_config, generation_config=generation_config, store=store, image=image
    )
    with init_empty_weights(include_buffers=False):
        hf = family.auto_class.from_config(
            hf_config, dtype=_weights_dtype(config), attn_implementation=family.attention_settings(ATTENTION)
        )
    hf.tie_weights()  # what was tied lost that when it lost its memory
    hf.generation_config = _without_sampling_defaults(generation_config)
    family.adapt(hf)
    policy = PolicyModel(hf, family, prompts, dtype=_DTYPES[config.dtype], device=device)
    _make_trainable(policy, config) if trainable else policy.requires_grad_(False)
    return policy


def _make_trainable(policy: PolicyModel, config: ModelConfig) -> None:
    """What the config trains: its adapter where it has one, else all parts that are not frozen."""
    if config.lora is not None:
        add_adapter(policy.hf, policy.family, config.lora, freeze=config.freeze)
    else:
        apply_freeze(policy, config.freeze)


def load_hf(config: ModelConfig) -> Any:
    """The model of transformers alone, on the CPU."""
    hf_config, family, _ = _read_folder(config.path)
    with without_progress_bars():
        return _load_weights(config.path, family, hf_config, _weights_dtype(config))


def local_folder(path: str) -> Path:
    """Where the files of a model lie; those of a name on the hub are downloaded unless they were before."""
    return Path(path) if Path(path).is_dir() else Path(ask_transformers(path, snapshot_download))


def load_prompts(path: str, image: ImageConfig, *, store: ImageStore) -> PromptProcessor:
    """What makes the prompts of the model at `path`, the same as its policy has, without its weights."""
    hf_config, _, processor = _read_folder(path)
    return PromptProcessor(
        processor, config=hf_config, generation_config=_generation_config(path, hf_config), store=store, image=image
    )


def load_skeleton(config: ModelConfig, image: ImageConfig, *, store: ImageStore) -> PolicyModel:
    """The policy without its weights, on torch's meta device: sizes and parts can be asked for, nothing computed."""
    return skeleton_with(config, load_prompts(config.path, image, store=store))


def skeleton_with(config: ModelConfig, prompts: PromptProcessor) -> PolicyModel:
    """`load_skeleton` around the prompts of the same model that are there already."""
    hf_config, family, _ = _read_folder(config.path)
    with torch.device("meta"):
        hf = family.auto_class.from_config(
            hf_config, dtype=torch.float32, attn_implementation=family.attention_settings(ATTENTION)
        )
        policy = PolicyModel(hf, family, prompts, dtype=_DTYPES[config.dtype])
    _make_trainable(policy, config)
    return policy


def has_only_config(path: str) -> bool:
    """Whether a model folder holds a configuration and neither tokenizer nor weights."""
    folder = Path(path)
    files = (*_TOKENIZER_FILES, *_PROCESSOR_FILES, *_WEIGHT_FILES)
    return (folder / "config.json").is_file() and not any(next(folder.glob(name), None) for name in files)


def load_sizes(config: ModelConfig) -> PolicyModel:
    """The policy on torch's meta device by its configuration alone, which can be asked for sizes and parts only."""
    check_folder(config.path)
    hf_config = ask_transformers(config.path, AutoConfig.from_pretrained)
    family = family_for(hf_config)
    with torch.device("meta"):
        hf = family.auto_class.from_config(hf_config, dtype=torch.float32)
        policy = PolicyModel(hf, family, _NoPrompts(), dtype=_DTYPES[config.dtype])  # type: ignore[arg-type]
    _make_trainable(policy, config)
    return policy


class _NoPrompts:
    """In the place of what makes prompts, for a model without a tokenizer."""

    banned_token_ids: tuple[int, ...] = ()
    end_token_ids: frozenset[int] = frozenset()


def family_of(path: str) -> Family:
    """The family of the model at `path`, by its configuration alone."""
    check_folder(path)
    return family_for(ask_transformers(path, AutoConfig.from_pretrained))


def device_of(config: ModelConfig) -> torch.device:
    """Where the model will run. Raises ModelError for a GPU that is not there."""
    return _device(config.device)


def _read_folder(path: str) -> tuple[Any, Family, Any]:
    """Configuration, family and processor (for text alone the tokenizer) of a model whose files are complete."""
    check_folder(path)
    hf_config = ask_transformers(path, AutoConfig.from_pretrained)
    family = family_for(hf_config)
    _refuse_quantised(path, hf_config)
    if Path(path).is_dir():
        _check_files(Path(path), family)
    processor = ask_transformers(path, (AutoProcessor if family.sees_images else AutoTokenizer).from_pretrained)
    check_vocabulary(path, hf_config, getattr(processor, "tokenizer", processor))
    return hf_config, family, processor


def _refuse_quantised(path: str, hf_config: Any) -> None:
    """Weights are trained, merged with adapters and sent to engines as floating-point numbers; a quantised base would
    drift with every merge."""
    quantised = getattr(hf_config, "quantization_config", None)
    if quantised is not None:
        values = quantised if isinstance(quantised, dict) else quantised.to_dict()
        raise ModelError(
            f"model.path: {path} is quantised ({values.get('quant_method', 'by an unknown method')}), and mmrl trains, "
            "samples and merges adapters in bfloat16 or float32; take the model that it was made from (an adapter, "
            "model.lora, keeps the memory of training low)"
        )


def _weights_dtype(config: ModelConfig) -> torch.dtype:
    """Of the weights that an optimiser moves."""
    return torch.float64 if config.dtype == "float64" else torch.float32


def _generation_config(path: str, hf_config: Any) -> GenerationConfig:
    """As the loaded model has it: that of its folder, else what its configuration says."""
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:
        return GenerationConfig.from_model_config(hf_config)


def _load_weights(path: str, family: Family, config: Any, dtype: torch.dtype) -> Any:
    hf, info = ask_transformers(
        path,
        family.auto_class.from_pretrained,
        config=config,
        dtype=dtype,
        attn_implementation=family.attention_settings(ATTENTION),
        output_loading_info=True,
    )
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ModelError(
            f"model {path}: {len(missing)} weights are missing from its files, such as {missing[0]}; "
            "the folder is incomplete or of another architecture than its config.json says"
        )
    return hf


def check_folder(path: str) -> None:
    """A path that is no folder may still be a name on the hub, of the form `owner/name`."""
    if Path(path).is_dir():
        return
    is_hub_name = path.count("/") == 1 and not path.startswith((".", "/", "~"))
    if not is_hub_name or Path(path).exists():
        raise NotFoundError(f"model {path}: no such folder; give a model folder, or a name on the hub as owner/name")


def ask_transformers(path: str, load: Any, **arguments: Any) -> Any:
    """What transformers loads from `path`, its errors turned into one that says what to do."""
    try:
        return load(path, **arguments)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"model {path}: its weights lie in a pickle that holds more than tensors, which could run code and is not "
            "loaded; save the model again with save_pretrained, as safetensors"
        ) from error
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        if Path(path).is_dir():
            if (Path(path) / "adapter_config.json").is_file() and not (Path(path) / "config.json").is_file():
                reason = (
                    "it is an adapter of peft without the weights that it is added to; export the merged model "
                    "(`mmrl checkpoint export RUN`, without --adapter), or merge it with peft's merge_and_unload"
                )
            raise ModelError(f"model {path}: {reason}") from error
        offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
        hint = (
            "HF_HUB_OFFLINE is set, so only what was downloaded before can be used"
            if offline
            else "check the name and the network"
        )
        raise NotFoundError(
            f"model {path}: neither a folder here nor available from the hub ({hint}): {reason}"
        ) from error


def _check_files(folder: Path, family: Family) -> None:
    """Raises ModelError naming the files that a model folder of this family lacks."""
    needed = {"a tokenizer": _TOKENIZER_FILES, "weights": _WEIGHT_FILES}
    if family.sees_images:
        needed = {"an image processor": _PROCESSOR_FILES} | needed
    lacking = [
        f"{what} ({' or '.join(names)})"
        for what, names in needed.items()
        if not any(next(folder.glob(name), None) for name in names)
    ]
    if lacking:
        raise ModelError(
            f"model {folder} has no {', no '.join(lacking)}; copy the missing files from the model that it was made "
            "from, or save its processor there with save_pretrained"
        )
    check_shard_indexes(folder)


def check_shard_indexes(folder: Path) -> None:
    """Raises ModelError where an index of shards in a model folder names a file outside."""
    for index in folder.glob("*.index.json"):
        _check_shard_index(index)


def _check_shard_index(index: Path) -> None:
    """Raises ModelError for an index of shards that names a file outside its folder."""
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{index}: no index of shards that can be read: it needs `weight_map`, a map of weights to files"
        ) from error
    for name in names:
        parts = PurePosixPath(str(name).replace("\\", "/"))
        if not isinstance(name, str) or parts.is_absolute() or ".." in parts.parts or PureWindowsPath(name).drive:
            raise ModelError(
                f"{index}: names the shard {str(name)[:200]!r}, which leads out of the model's folder; only files "
                "inside are loaded: get the model again from where it was made"
            )


def _without_sampling_defaults(generation_config: GenerationConfig | None) -> GenerationConfig:
    """Only the special ids: no sampling default may come silently from a checkpoint."""
    ids = ("bos_token_id", "eos_token_id", "pad_token_id")
    kept = {name: getattr(generation_config, name, None) for name in ids}
    return GenerationConfig(**kept)


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelError("model.device: cuda was asked for and no GPU is available; use cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
