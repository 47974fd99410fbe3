"""Do a model's files speak of one vocabulary? The rows of its embedding, its configuration and its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from mmrl.errors import ModelError

_EMBEDDING = "embed_tokens.weight"


def check_vocabulary(path: str, config: Any, tokenizer: Any) -> None:
    """Raises ModelError where the embedding in the files has other rows than config.json says, or fewer than the
    tokenizer has tokens. More rows than tokens are usual: they fill up to a round number."""
    rows = config.get_text_config().vocab_size
    stored = _stored_rows(Path(path))
    if stored is not None and stored != rows:
        raise ModelError(
            f"model {path}: its embedding has {stored} rows in the weights and vocab_size {rows} in config.json; the "
            "vocabulary was resized in one of them and not in the other. Load the model as it was, call "
            "resize_token_embeddings and save it again, or put back the config.json that belongs to the weights"
        )
    tokens = max([len(tokenizer) - 1, *tokenizer.added_tokens_decoder]) + 1
    if tokens > rows:
        raise ModelError(
            f"model {path}: its tokenizer has {tokens} tokens and its embedding {rows} rows, so some tokens have no "
            f"weights; call resize_token_embeddings({tokens}) and save the model again, or take its own tokenizer"
        )


def _stored_rows(folder: Path) -> int | None:
    """Rows of the embedding in the safetensors files of a folder; None where that cannot be told."""
    for file in _likely_files(folder):
        try:
            with safe_open(file, framework="pt") as weights:
                for name in weights.keys():  # noqa: SIM118 - no mapping
                    if name.endswith(_EMBEDDING):
                        return int(weights.get_slice(name).get_shape()[0])
        except (SafetensorError, OSError):
            return None  # loading says what is wrong with the file
    return None


def _likely_files(folder: Path) -> list[Path]:
    """The file that the index names, or all of them."""
    for index in folder.glob("*.safetensors.index.json"):
        found = json.loads(index.read_bytes())["weight_map"]
        return [folder / file for name, file in found.items() if name.endswith(_EMBEDDING)]
    return sorted(folder.glob("*.safetensors"))
