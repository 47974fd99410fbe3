"""What is judged: from where, which answers, how many. All of it lies in the address, which is sent to others.

What the address leaves open is chosen once and written into it: a newer step or checkpoint changes nothing of what
those judge who have the address already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import streamlit as st

from console import context
from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.parts import empty_state, problem
from console.services.checkpoint_compare import MAX_COMPARED, PanelGroup, by_panel, chosen
from console.services.label_chats import chat_source
from console.services.label_drawing import Drawing, Way
from console.services.label_items import ItemSource, panel_source, run_source
from mmrl.evaluation.finding import all_evaluations
from mmrl.evaluation.records import Evaluation
from mmrl.jobs.records import Job, local_path
from mmrl.runs.layout import is_run
from mmrl.runs.reader import RunReader

Origin = Literal["panel", "run", "chat"]
_ORIGINS: Mapping[str, str] = {"panel": "Checkpoints on a panel", "run": "Samples of a run", "chat": "A conversation"}
_WAYS: Mapping[str, str] = {"pairs": "Two at a time", "ranking": "Rank a group"}
_NUMS = ("10", "20", "50", "100", "200", "all")
_DEFAULT_NUM = "20"
_NUM_RUNS = 200


def chosen_items() -> tuple[ItemSource, Drawing] | None:
    """What the address asks for; None where there is nothing to choose from, which is told."""
    panels = [group for group in by_panel(all_evaluations()) if len(group.evaluations) > 1]
    with st.expander("What is judged", key="label-what"):
        origin = _choice("From", _ORIGINS, "from", default="panel" if panels else "run")
        source = _of_panel(panels) if origin == "panel" else _of_run() if origin == "run" else _of_chat()
        drawing = _drawing()
    if source is None:
        _what_is_needed(origin)
        return None
    return source, drawing


def _drawing() -> Drawing:
    with st.container(horizontal=True, key="label-drawing", gap="medium"):
        way = _choice("How", _WAYS, "way", default="pairs")
        num = _select("How many", _NUMS, "num", default=_DEFAULT_NUM, help="Everybody with this address gets the same.")
        only = _select(
            "Which",
            ("any", "differ"),
            "only",
            default="any",
            names={"any": "any answers", "differ": "only where rewards differ"},
        )
    kind: Way = "ranking" if way == "ranking" else "pairs"
    return Drawing(kind, None if num == "all" else int(num), only == "differ")


def _of_panel(panels: Sequence[PanelGroup]) -> ItemSource | None:
    if not panels:
        return None
    known = {group.hash: group for group in panels}
    asked = words().get("ids", "").split(",")
    of_asked = (group.hash for group in panels if any(evaluation.id in asked for evaluation in group.evaluations))
    panel = _select(
        "Panel",
        list(known),
        "panel",
        default=next(of_asked, panels[0].hash),
        names={each: group.name for each, group in known.items()},
        forget=("ids",),
    )
    group = known[panel]
    evaluations = {evaluation.id: evaluation for evaluation in group.evaluations}
    shown = _asked_evaluations(group)
    show_value("label-ids", [evaluation.id for evaluation in shown])
    st.multiselect(
        "Checkpoints",
        list(evaluations),
        format_func=lambda each: evaluations[each].model.label,
        key="label-ids",
        max_selections=MAX_COMPARED,
        on_change=changed("label-ids", lambda value: change(ids=",".join(value) or None)),
        help="Their answers to the same prompts are shown side by side, unnamed.",
    )
    return panel_source(shown) if len(shown) > 1 else None


def _asked_evaluations(group: PanelGroup) -> list[Evaluation]:
    asked = list(filter(None, words().get("ids", "").split(",")))
    shown = chosen(group, asked)
    gone = sorted(set(asked) - {evaluation.id for evaluation in group.evaluations})
    if gone:
        problem(f"The address asks for evaluations that are gone: {', '.join(gone)}. Others are shown in their place.")
    elif not asked:
        change(ids=",".join(evaluation.id for evaluation in shown))
    return shown


def _of_run() -> ItemSource | None:
    jobs = {job.id: job for job in context.jobs().list(limit=_NUM_RUNS) if _reader(job) is not None}
    asked = words().get("run", "")
    if asked and asked not in jobs:
        jobs[asked] = context.jobs().get(asked)
    if not jobs:
        return None
    names = {job.id: f"{job.name} · {job.short_id}" for job in jobs.values()}
    job = jobs[_select("Run", list(jobs), "run", default=next(iter(jobs)), names=names, forget=("step", "split"))]
    reader = _reader(job)
    splits = [] if reader is None else sorted(reader.splits(), key=lambda split: (split != "train", split))
    if reader is None or not splits:
        return None
    with st.container(horizontal=True, key="label-samples", gap="medium"):
        split = _select("Split", splits, "split", default=splits[0], forget=("step",))
        steps = [str(step) for step in reader.steps(split)]
        step = _select("Step", steps, "step", default=steps[-1])
    return run_source(job, reader, split, int(step))


def _of_chat() -> ItemSource | None:
    """One's own conversations, and the one that the address names; those with two answers to a question."""
    conversations = context.conversations()
    known = {each.id: each for each in conversations.mine() if len(each.columns) > 1}
    asked = words().get("chat", "")
    if asked and asked not in known:
        known[asked] = conversations.get(asked)
    if not known:
        return None
    names = {each.id: each.title for each in known.values()}
    return chat_source(known[_select("Conversation", list(known), "chat", default=next(iter(known)), names=names)])


def _reader(job: Job) -> RunReader | None:
    """None for a job that samples nothing, or whose files are elsewhere."""
    path = local_path(job.run_dir)
    return RunReader(path) if job.kind == "rl" and path is not None and is_run(path) else None


def _what_is_needed(origin: str) -> None:
    if origin == "panel":
        empty_state(
            "Nothing to judge yet",
            "Two checkpoints that were asked the same panel are needed: `mmrl checkpoint evaluate RUN@STEP --panel "
            "NAME`, or Evaluate on the page of a run. The samples of a run can be judged too: choose them above.",
        )
    elif origin == "chat":
        told = "A conversation of the Playground with two checkpoints or more is needed."
        empty_state("Nothing to judge yet", f"{told} What is marked there counts here.")
    else:
        empty_state("Nothing to judge yet", "A run that samples and kept its texts on this machine is needed.")
    st.page_link("app_pages/runs.py", label="Runs")


def _choice(label: str, options: Mapping[str, str], name: str, *, default: str) -> str:
    value = _asked(label, name, list(options), default)
    st.segmented_control(
        label,
        list(options),
        format_func=options.__getitem__,
        key=f"label-{name}",
        required=True,
        on_change=changed(f"label-{name}", _store(name)),
    )
    return value


def _select(
    label: str,
    options: Sequence[str],
    name: str,
    *,
    default: str,
    names: Mapping[str, str] | None = None,
    forget: Sequence[str] = (),
    help: str | None = None,
) -> str:
    """forget: what of the address is about another choice."""
    value = _asked(label, name, options, default)
    st.selectbox(
        label,
        options,
        format_func=lambda each: (names or {}).get(each, each),
        key=f"label-{name}",
        help=help,
        on_change=changed(f"label-{name}", _store(name, forget)),
    )
    return value


def _asked(label: str, name: str, options: Sequence[str], default: str) -> str:
    """What the address asks for, given to the widget too. Where it leaves that open the default, which it says from
    then on; what is not there is said to be replaced, as others with the address may have judged it."""
    asked = words().get(name)
    value = asked if asked is not None and asked in options else default
    if asked is None:
        change(**{name: value})
    elif asked != value:
        problem(f"The address asks for {label.lower()} {asked!r}, which is not there. {value!r} is shown in its place.")
    if st.session_state.get(f"label-{name}") != value:
        st.session_state[f"label-{name}"] = value
    return value


def _store(name: str, forget: Sequence[str] = ()) -> Callable[[Any], None]:
    def store(value: Any) -> None:
        change(**{name: value}, **dict.fromkeys(forget))

    return store
