"""What a run of a draft would do and need, as a dry run found it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from console.components.parts import problem
from console.components.text import literal
from console.services.formats import count_text, duration_text, number_text
from console.services.processes import Task

_PROBES = {"reference in a box": "right, boxed", "reference plain": "right, plain"}


def preflight_card(report: Mapping[str, Any]) -> None:
    """Figures first; how they come about on demand."""
    by_name = {each["name"]: each for each in report["estimates"]}
    facts = [
        ("Data", _data(report)),
        ("Prompts", _prompts(report)),
        ("A step", _step(report)),
        ("Updates", _updates(report)),
    ]
    facts += [
        ("Model", _model(report)),
        ("Memory", _estimate(by_name.get("memory"))),
        ("Time", _estimate(by_name.get("time"))),
    ]
    facts += [("Rewards", _rewards(report)), ("Placement", _placement(report))]
    with st.container(key="preflight_facts", gap="xsmall"):
        for label, text in facts:
            if text:
                name, value = st.columns([1, 4], gap="small")
                name.caption(label)
                value.text(text)
    for text in report.get("problems", ())[:5]:
        st.warning(literal(text))
    if report.get("share_over_limit", 0) > 0:
        over = count_text(report["num_over_limit"])
        st.warning(literal(f"{over} prompts are over the limit of {report['max_prompt_tokens']} tokens."))
    for text in report.get("notes", ()):
        st.caption(literal(text))
    with st.expander("How these figures come about", key="estimates"):
        for each in report["estimates"]:
            st.caption(f"{literal(each['name'])}: {literal(_value(each))}")
            st.text(each["reason"])


def preflight_failure(task: Task) -> None:
    st.error("A run would not begin.")
    problem(task.error or "The check said nothing.")


def preflight_working(task: Task) -> None:
    text = "Waits for its turn" if task.state == "waiting" else f"Checking for {duration_text(task.seconds)}"
    st.caption(f"{text}… It reads the data, counts tokens and tries the rewards.")


def _data(report: Mapping[str, Any]) -> str:
    head = f"{count_text(report['train_samples'])} samples, {count_text(report['eval_samples'])} held out"
    mixture = report.get("mixture") or {}
    if len(mixture) < 2:
        return head
    return f"{head}; drawn from " + ", ".join(f"{name} {part['share']:.0%}" for name, part in mixture.items())


def _prompts(report: Mapping[str, Any]) -> str:
    if "prompt_tokens_max" not in report:
        return str(report.get("skipped", ""))
    low, high = report["prompt_tokens_min"], report["prompt_tokens_max"]
    size = f"{low}" if low == high else f"{low} to {high}"
    over = f"; {count_text(report['num_over_limit'])} over the limit of {count_text(report['max_prompt_tokens'])}"
    return f"{size} tokens with images, {number_text(report['prompt_tokens_mean'], 3)} on average{over}"


def _step(report: Mapping[str, Any]) -> str:
    prompts, responses = report["samples_per_step"], report["responses_per_step"]
    return f"{count_text(prompts)} prompts, {count_text(responses)} responses"


def _updates(report: Mapping[str, Any]) -> str:
    if "optimiser_steps" not in report:
        return ""
    passes = number_text(report["data_epochs"], 3)
    return f"{count_text(report['optimiser_steps'])} optimiser steps, {passes} passes over the data"


def _model(report: Mapping[str, Any]) -> str:
    total, trained = report["parameters"], report["trainable_parameters"]
    return f"{_parameters(total)} parameters" + (
        ", all trained" if total == trained else f", {_parameters(trained)} trained"
    )


def _parameters(number: int) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number_text(number / size, 3)} {unit}"
    return count_text(number)


def _rewards(report: Mapping[str, Any]) -> str:
    means = [
        f"{_PROBES.get(each['probe'], each['probe'])} {number_text(each['mean'], 3)}"
        for each in report.get("rewards", ())
    ]
    return "; ".join(means)


def _placement(report: Mapping[str, Any]) -> str:
    places: dict[str, list[str]] = {}
    for role, place in report["placement"].items():
        places.setdefault(str(place), []).append(str(role))
    return "; ".join(f"{', '.join(roles)}: {place}" for place, roles in places.items())


def _estimate(each: Mapping[str, Any] | None) -> str:
    return "" if each is None else _value(each)


def _value(each: Mapping[str, Any]) -> str:
    if each["unit"] == "bytes":
        size, unit = (2**30, "GiB") if each["value"] >= 2**30 else (2**20, "MiB")
        return f"{number_text(each['value'] / size, 3)} {unit}"
    if each["unit"] == "s":
        return f"about {duration_text(each['value'])}"
    return f"{number_text(each['value'])} {each['unit']}"
