"""The history of a run as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from mmrl.config.dump import value_text
from mmrl.jobs.records import JobEvent

Tone = Literal["plain", "good", "warning", "bad"]


@dataclass(frozen=True)
class EventLine:
    """text: one sentence; what it quotes of the run or of people is to be shown as it stands."""

    at: datetime
    attempt: int
    text: str
    tone: Tone = "plain"


def event_line(event: JobEvent, *, people: Mapping[str, str]) -> EventLine:
    """people: user id -> name."""
    who = _who(event.actor, people)
    payload = event.payload
    told = _TOLD.get(event.cause)
    text = told(who, payload) if told is not None else _plain(event, who)
    return EventLine(event.at, event.attempt, text, _TONES.get(event.cause, "plain"))


def _who(actor: str, people: Mapping[str, str]) -> str:
    kind, _, name = actor.partition(":")
    if kind == "user":
        return people.get(name, name)
    return "A worker" if kind == "worker" else actor


def _plain(event: JobEvent, who: str) -> str:
    words = event.cause.replace("_", " ")
    if event.to_state is not None:
        return f"{who}: {words}; the run is {event.to_state}."
    return f"{who}: {words}."


def _message(payload: Mapping[str, Any]) -> str:
    return str(payload.get("message") or "without a word")


def _at_step(payload: Mapping[str, Any]) -> str:
    return f" at step {payload['step']}" if isinstance(payload.get("step"), int) else ""


def _changes(payload: Mapping[str, Any]) -> str:
    changes = payload.get("changes")
    if not isinstance(changes, Mapping):
        return _message(payload)
    return "; ".join(f"{key} {_pair(values)}" for key, values in changes.items())


def _pair(values: Any) -> str:
    if isinstance(values, list | tuple) and len(values) == 2:
        return f"from {value_text(values[0])} to {value_text(values[1])}"
    return str(values)


def _edited(who: str, payload: Mapping[str, Any]) -> str:
    words = {
        "tags": lambda value: f"set the tags to {', '.join(value) or 'none'}",
        "note": lambda value: f"wrote the note “{value}”" if value else "removed the note",
        "priority": lambda value: f"set the priority to {value}",
    }
    told = [words[key](value) if key in words else f"set {key}" for key, value in payload.items()]
    return f"{who} {' and '.join(told) or 'changed nothing'}."


def _held_memory(who: str, payload: Mapping[str, Any]) -> str:
    gpus = payload.get("gpus")
    names = ", ".join(gpus) if isinstance(gpus, Mapping) else "its GPUs"
    return (
        f"Its processes have ended, yet memory of {names} is still held; the GPUs are given to nobody until it is free."
    )


_TOLD: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
    "submit": lambda who, _: f"{who} submitted the run.",
    "claim": lambda who, _: f"{who} took it and starts it.",
    "fetching": lambda _, payload: f"Before it starts it {_message(payload)}.",
    "started": lambda *_: "The run started.",
    "finished": lambda *_: "The run has done all its steps.",
    "failed": lambda _, payload: "The run failed" + (f": {payload['message']}" if payload.get("message") else "."),
    "retry": lambda _, payload: (
        "It is started again by itself" + (f", since: {payload['message']}" if payload.get("message") else ".")
    ),
    "preempted": lambda *_: "It gave way to others, and waits again.",
    "cancel_requested": lambda who, _: f"{who} asked it to stop, with a last checkpoint.",
    "kill_requested": lambda who, _: f"{who} asked to end it at once.",
    "pause_requested": lambda who, _: f"{who} asked it to pause.",
    "cancel": lambda *_: "The run was stopped.",
    "pause": lambda *_: "The run pauses.",
    "resume": lambda who, _: f"{who} resumed it.",
    "lease_expired": lambda *_: "Its worker was not heard of any more; the run is lost until another one looks.",
    "adopted": lambda *_: "Another worker found it alive and took it over.",
    "dependency": lambda *_: "It was cancelled, since a run that it waited for did not succeed.",
    "edited": _edited,
    "warning": lambda _, payload: f"Warning{_at_step(payload)}: {_message(payload)}",
    "failure": lambda _, payload: f"Failure: {_message(payload)}",
    "progress": lambda _, payload: _message(payload),
    "checkpoint": lambda _, payload: f"Checkpoint written{_at_step(payload)}.",
    "config_changed": lambda _, payload: f"Settings changed: {_changes(payload)}",
    "gpu_memory_held": _held_memory,
    "index_failed": lambda _, payload: f"What the run wrote could not be read: {_message(payload)}",
}
_TONES: dict[str, Tone] = {
    "failed": "bad",
    "failure": "bad",
    "warning": "warning",
    "index_failed": "warning",
    "gpu_memory_held": "warning",
    "lease_expired": "warning",
    "retry": "warning",
    "dependency": "warning",
    "finished": "good",
}
