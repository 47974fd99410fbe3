"""The rewards that there are, each explained: from its config class, its class in the registry and the manual.

Nothing is told twice: what a reward pays and what can be set stands in its config, how it is reckoned in its class, and
what to mind in docs/rewards.md. Of a reward's module only the text is read, so that nothing heavy is imported.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from mmrl.rewards.catalogue import RewardField, reward_types
from mmrl.rewards.registry import REWARDS

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "rewards.md"
FAMILIES = {
    "answers": "Compare with the reference",
    "vision": "Look at images and boxes",
    "form": "Form, length and language",
    "code": "Run programs",
    "model": "Ask models and services",
    "combine": "Made of others",
    "function": "Your own function",
}
_EXAMPLES = {
    "function": "{type: function, path: my_reward.py, name: score}",
    "model": "{type: model, path: my-reward-model}",
    "judge": "{type: judge, url: 'http://127.0.0.1:8000/v1', model: NAME}",
    "remote": "{type: remote, url: 'https://rewards.example/score'}",
    "gate": "{type: gate, condition: {type: format}, reward: {type: math}}",
    "min": "{type: min, rewards: [{type: math}, {type: format}]}",
    "product": "{type: product, rewards: [{type: math}, {type: format}]}",
    "veto": "{type: veto, reward: {type: keyword, keywords: [forbidden]}, total: -1}",
    "keyword": "{type: keyword, keywords: [forbidden]}",
    "length": "{type: length, free_tokens: 256, max_tokens: 1024}",
    "overlong": "{type: overlong, limit: 1024, buffer: 128}",
    "language": "{type: language, language: en}",
    "iou": "{type: iou, frame: pixels}",
    "point": "{type: point, frame: pixels}",
}
"""Where a type alone does not do."""
_SECTIONS = {
    **dict.fromkeys(("gate", "min", "product", "veto"), "Rewards made of others"),
    "function": "A function of your own",
    "code": "Running what the policy wrote",
}
"""Sections of the manual that are about a reward as a whole."""
_HEAD = re.compile(r"\*\*([a-z_]+)\*\*(?=[ ,.]| and \*\*)")


@dataclass(frozen=True)
class RewardNote:
    """pays: in one sentence. value, reads: the manual's row of it; empty where it has none. formula: how it is counted.
    manual: paragraphs about it. All four are Markdown of mmrl's own. example: YAML of one entry."""

    type: str
    family: str
    pays: str
    value: str
    reads: str
    formula: str
    manual: str
    example: str
    fields: tuple[RewardField, ...]


@cache
def reward_notes() -> dict[str, RewardNote]:
    """By type, in the registry's order."""
    described = {each.type: each for each in reward_types()}
    text = MANUAL.read_text(encoding="utf-8") if MANUAL.is_file() else ""
    rows = _table(text)
    found = {}
    for name, where in REWARDS.items():
        value, reads = rows.get(name, ("", ""))
        found[name] = RewardNote(
            type=name,
            family=where.partition(".")[0],
            pays=described[name].description,
            value=value,
            reads=reads,
            formula=_class_text(where),
            manual=_about(name, text),
            example=_EXAMPLES.get(name, f"{{type: {name}}}"),
            fields=described[name].fields,
        )
    return found


def _table(text: str) -> dict[str, tuple[str, str]]:
    """type -> (value, what it reads) of the rows that begin with a type; several types may share one."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        names = re.findall(r"`(\w+)`", cells[0]) if line.startswith("| `") else []
        for name in names:
            if name in REWARDS and len(cells) >= 2:
                found.setdefault(name, (cells[1], cells[2].strip("| ") if len(cells) > 2 else ""))
    return found


def _about(name: str, text: str) -> str:
    """The paragraphs that begin with its name in bold, with what follows until another one's; else its section."""
    paragraphs = text.split("\n\n")
    for start, paragraph in enumerate(paragraphs):
        head = paragraph.split("\n")[0]
        if name in _HEAD.findall(head)[:2] and head.startswith("**"):
            return "\n\n".join([paragraph, *_rest(paragraphs[start + 1 :])])
    sections = re.split(r"(?m)^## ", text)[1:]
    section = next((each for each in sections if each.startswith(_SECTIONS.get(name, "\0"))), "")
    return section.partition("\n")[2].strip()


def _rest(paragraphs: list[str]) -> list[str]:
    found: list[str] = []
    for paragraph in paragraphs:
        if paragraph.startswith(("**", "#", "Units, in", "Where ", "They ")):
            break
        found.append(paragraph)
    return found


def _class_text(where: str) -> str:
    """The docstring of the class, read from the file's text."""
    module, _, class_name = where.rpartition(".")
    spec = find_spec(f"mmrl.rewards.{module}")
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    node = next((each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == class_name), None)
    return inspect.cleandoc(ast.get_docstring(node) or "") if node is not None else ""
