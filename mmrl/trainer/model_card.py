"""The README.md of an exported model: where it comes from, what it was measured at, how it is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config.dump import yaml_text
from mmrl.trainer.export_checks import Verified
from mmrl.trainer.lineage import Lineage

_FENCE = "```"


def model_card(lineage: Lineage, verified: Verified) -> str:
    """Markdown with the front matter that the hub reads."""
    sections = [_front_matter(lineage), f"# {_text(lineage.name)}", _opening(lineage), _loading(verified)]
    sections += [_table("Metrics at this step", lineage.metrics)] if lineage.metrics else []
    for each in lineage.evaluations:
        numbers = {name: value for name, value in each.items() if isinstance(value, float)}
        sections.append(_table(f"Evaluation on {_text(str(each['panel']))} ({_text(str(each['data']))})", numbers))
    sections += [_data(lineage), _checks(verified), _settings(lineage)]
    return "\n\n".join(section for section in sections if section) + "\n"


def _front_matter(lineage: Lineage) -> str:
    values: dict[str, Any] = {
        "library_name": "transformers",
        "tags": ["mmrl", str(lineage.config.get("kind", "model"))],
    }
    if lineage.base is not None:
        values["base_model"] = Path(lineage.base).name if Path(lineage.base).is_absolute() else lineage.base
    return f"---\n{yaml_text(values)}---"


def _opening(lineage: Lineage) -> str:
    if lineage.step is None:
        return "A copy of a model folder; no run of mmrl is known to have made it."
    kind = lineage.config.get("kind", "rl")
    how = f" with algorithm {lineage.config['algorithm']['type']}" if kind == "rl" else ""
    text = f"Step {lineage.step} of the run {_text(lineage.name)}, trained by mmrl {lineage.mmrl} (kind {kind}{how})"
    text += f" from {_text(Path(str(lineage.base)).name)}." if lineage.base else "."
    if lineage.forked_from is not None:
        text += f" The run began at step {lineage.forked_from['step']} of {_text(str(lineage.forked_from['run']))}."
    return text


def _loading(verified: Verified) -> str:
    auto = "AutoModelForImageTextToText" if verified.sees_images else "AutoModelForCausalLM"
    lines = [
        "## Use",
        "",
        f"{_FENCE}python",
        f"from transformers import {auto}, {'AutoProcessor' if verified.sees_images else 'AutoTokenizer'}",
        "",
        f'model = {auto}.from_pretrained("PATH")',
        f'processor = {"AutoProcessor" if verified.sees_images else "AutoTokenizer"}.from_pretrained("PATH")',
        _FENCE,
        "",
        "or `mmrl serve PATH`, which starts vLLM's OpenAI-compatible server on it.",
    ]
    if verified.is_reward_model:
        lines += ["", "Its head scores answers: `reward: [{type: model, model: {path: PATH}}]` in a config."]
    return "\n".join(lines)


def _table(title: str, values: Mapping[str, float]) -> str:
    rows = [f"| {_text(name)} | {value:.4g} |" for name, value in sorted(values.items()) if value is not None]
    return "\n".join([f"## {title}", "", "| metric | value |", "| --- | --- |", *rows])


def _data(lineage: Lineage) -> str:
    if not lineage.data:
        return ""
    rows = [
        f"| {_text(name)} | {part['num_samples']} | `{part['content']}` |"
        for name, part in sorted(lineage.data.items())
    ]
    return "\n".join(["## Training data", "", "| set | samples | content (SHA-256) |", "| --- | --- | --- |", *rows])


def _checks(verified: Verified) -> str:
    return "\n".join(["## Checked at export", "", *(f"- {line}" for line in verified.lines)])


def _settings(lineage: Lineage) -> str:
    if not lineage.config:
        return ""
    return f"## Config\n\n{_FENCE}yaml\n{yaml_text(dict(lineage.config))}{_FENCE}"


def _text(text: str) -> str:
    """On one line, without what markdown or HTML would obey."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
