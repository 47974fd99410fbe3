"""Samples as text for people. Whatever comes from models and data is printed inert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from mmrl.cli.output import fold, note, print_table, terminal_width
from mmrl.runs.inert import inert
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord, ResponseRecord, StepSummary
from mmrl.types import ImagePart, Message, RewardPart

_MAX_PROMPT_CHARACTERS = 80


def print_summaries(steps: Sequence[StepSummary]) -> None:
    """One line a step."""
    if not steps:
        note("no samples were kept yet")
        return
    rows: list[dict[str, Any]] = [
        {
            "step": step.step,
            "split": step.split,
            "groups": step.num_groups,
            "responses": step.num_responses,
            "reward": step.reward_mean,
            "std": step.reward_std,
            "length": step.length_mean,
            "cut": step.num_truncated,
        }
        for step in steps
    ]
    print_table(rows, list(rows[0]))


def print_group_rows(groups: Sequence[GroupRecord]) -> None:
    """One line a group: its number, rewards and the beginning of its prompt."""
    rows: list[dict[str, Any]] = []
    for group in groups:
        rewards = [response.reward for response in group.responses if response.reward is not None]
        rows.append(
            {
                "group": group.group_id,
                "n": len(group.responses),
                "reward": group.reward_mean,
                "best": max(rewards, default=None),
                "worst": min(rewards, default=None),
                "prompt": _short(group.prompt[-1].text) if group.prompt else "(not kept)",
            }
        )
    print_table(rows, list(rows[0]))


def print_groups(reader: RunReader, groups: Sequence[GroupRecord], *, num_groups: int) -> None:
    """Each group in full: prompt, images, then its responses from the highest reward to the lowest."""
    page = _Page()
    first = groups[0]
    page.write(
        f"step {first.step}, {first.split}, attempt {first.attempt}, {_count(num_groups, 'group')}", style="bold"
    )
    for group in groups:
        page.write("")
        _write_prompt(page, reader, group)
        for response in group.by_reward:
            page.write("")
            _write_response(page, response, name=f"#{response.sample_idx}")
        if group.greedy is not None:
            page.write("")
            _write_response(page, group.greedy, name="greedy, which the others are compared with:")


class _Page:
    """Lines folded to the terminal and coloured in it; whole and plain where stdout is none."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._width = terminal_width()

    def write(self, text: str, *, indent: int = 0, style: str = "", whole: bool = False) -> None:
        """Every line of the text, `indent` columns in. whole: never broken, so that a path can be copied."""
        text = text.expandtabs(4)
        lines = text.split("\n") if whole or self._width is None else fold(text, max(self._width - indent, 20))
        for line in lines:
            self._console.print(Text(" " * indent + line, style=style) if line else "")


def _write_prompt(page: _Page, reader: RunReader, group: GroupRecord) -> None:
    spread = "" if group.reward_std is None else f", std {group.reward_std:.3f}"
    page.write(f"group {group.group_id}: mean reward {_number(group.reward_mean)}{spread}", style="bold cyan")
    for image in group.images:
        path = reader.image(image.sha256)
        page.write(f"image {image.sha256[:12]}, {image.width}x{image.height}")
        where = str(path.relative_to(reader.run_dir)) if path is not None else "not kept"
        page.write(where, indent=2, style="dim", whole=True)
    if group.prompt is None:
        page.write("prompt and responses: only their numbers were kept", style="dim")
    for message in group.prompt or ():
        page.write(f"{message.role}: {_content(message)}")
    if group.answer is not None:
        page.write(f"answer: {inert(group.answer)}")


def _write_response(page: _Page, response: ResponseRecord, *, name: str) -> None:
    facts = [f"reward {_number(response.reward)}"]
    if response.advantage is not None:
        facts.append(f"advantage {response.advantage:+.3f}")
    facts += [_count(response.length, "token"), "cut at the limit" if response.is_truncated else response.finish_reason]
    page.write(f"{name}  {', '.join(facts)}", indent=2, style="green")
    for part in response.parts:
        page.write(_part(part), indent=4, style="red" if part.error else "dim")
    if response.text is not None:
        page.write(inert(response.text) or "(empty response)", indent=4)


def _part(part: RewardPart) -> str:
    scaled = "" if part.scaled is None else f", scaled {part.scaled:+.3f}"
    text = f"{inert(part.name, one_line=True)} {_number(part.value)} (weight {part.weight:g}{scaled})"
    if part.vetoes:
        text += ", vetoes"
    if part.extracted is not None:
        text += f", read as '{inert(part.extracted, one_line=True)}'"
    if part.explanation:
        text += f": {inert(part.explanation, one_line=True)}"
    if part.extras:
        facts = (
            f"{key} {value if isinstance(value, str) else format(value, 'g')}" for key, value in part.extras.items()
        )
        text += f" [{inert(', '.join(facts), one_line=True)}]"
    if part.error:
        text += f", failed: {inert(part.error, one_line=True)}"
    return text


def _content(message: Message) -> str:
    return "".join(
        f"<image {part.image.sha256[:12]}> " if isinstance(part, ImagePart) else inert(part.text)
        for part in message.content
    )


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MAX_PROMPT_CHARACTERS else words[: _MAX_PROMPT_CHARACTERS - 1] + "…"


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.3f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
