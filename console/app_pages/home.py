"""The page Home: what runs, waits and failed, the best checkpoints, the machines; at first, what to do."""

from __future__ import annotations

from contextlib import AbstractContextManager

import streamlit as st

from console import context
from console.components.parts import no_worker, part
from console.components.runs import failure, running_run, waiting_job
from console.components.text import age, literal
from console.services.formats import count_text, number_text
from console.services.machines import ClusterView, Machine
from console.services.overview import FAILURES_WITHIN_S, NUM_WAITING, Overview, overview
from mmrl.jobs.glance import BestCheckpoint

_EVERY_S = 3
_DAYS = round(FAILURES_WITHIN_S / 86_400)


@st.fragment(run_every=_EVERY_S)
def show() -> None:
    with part("what is going on"):
        view = overview(context.jobs(), context.fleet(), context.catalogue())
        if not view.has_jobs:
            _first_steps(view)
            return
        _figures(view)
        left, right = st.columns([5, 3], gap="large")
        with left:
            _running(view)
            _waiting(view)
        with right:
            _failures(view)
            _checkpoints(view)
            _machines(view.cluster)


def _figures(view: Overview) -> None:
    alive = view.cluster.alive
    gpus = sum(len(machine.gpu_jobs) for machine in alive)
    busy = sum(machine.num_busy_gpus for machine in alive)
    tiles = [
        (
            "Running",
            count_text(view.num_running),
            "Jobs that a worker holds (starting, running, stopping), or held until it fell silent (lost).",
        ),
        ("Waiting", count_text(view.cluster.num_waiting), "Jobs in the queue. Below is what each of them waits for."),
        ("Failed", count_text(view.num_failures), f"In the last {_DAYS} days, not resumed or tried again since."),
        ("Workers", count_text(len(alive)), "Processes that take jobs, heard of lately."),
        ("GPUs in use", f"{busy} of {gpus}", "GPUs that workers have given to jobs, of all that they may give."),
    ]
    with st.container(horizontal=True, key="figures"):
        for label, value, meaning in tiles:
            st.metric(label, value, help=meaning, border=True)


def _running(view: Overview) -> None:
    st.subheader("Running")
    if not view.running:
        st.text("Nothing runs.")
        st.page_link("app_pages/new_run.py", label="Start a run")
    for run in view.running:
        running_run(run, now=view.now)
    if view.num_running > len(view.running):
        st.page_link(
            "app_pages/runs.py",
            label=f"All {view.num_running} that run",
            query_params={"state": "starting,running,stopping,lost"},
        )


def _waiting(view: Overview) -> None:
    if not view.cluster.waiting:
        return
    st.subheader("Waiting")
    for waiting in view.cluster.waiting:
        waiting_job(waiting, now=view.now)
    if view.cluster.num_waiting > NUM_WAITING:
        st.page_link("app_pages/cluster.py", label=f"All {count_text(view.cluster.num_waiting)} in the queue")


def _failures(view: Overview) -> None:
    if not view.failures:
        return
    st.subheader("Failed")
    for job in view.failures:
        failure(job, now=view.now)
    if view.num_failures > len(view.failures):
        st.page_link("app_pages/runs.py", label="All that failed", query_params={"state": "failed"})


def _checkpoints(view: Overview) -> None:
    if not view.checkpoints:
        return
    st.subheader("Best checkpoints", help="Of the runs that wrote one last: the best by the metric that each names.")
    with st.container(border=True, key="best_checkpoints", gap="xsmall"):
        for best in view.checkpoints:
            _checkpoint(best)


def _checkpoint(best: BestCheckpoint) -> None:
    with _row():
        label = f"{literal(best.job.name)} · step {count_text(best.checkpoint.step)}"
        st.page_link("app_pages/run.py", label=label, query_params={"id": best.job.id})
        known = f"{best.metric} {number_text(best.value)}" if best.value is not None else "not evaluated"
        st.caption(literal(known), width="content")


def _machines(cluster: ClusterView) -> None:
    st.subheader("Machines")
    if not cluster.machines:
        no_worker()
        return
    with st.container(border=True, key="machines", gap="xsmall"):
        for machine in cluster.machines[:6]:
            _machine(machine, cluster)
        st.page_link("app_pages/cluster.py", label="Cluster")


def _machine(machine: Machine, cluster: ClusterView) -> None:
    worker = machine.worker
    with _row():
        st.text(worker.host if machine.condition == "active" else f"{worker.host} ({machine.condition})")
        if machine.condition == "silent":
            age(worker.heartbeat_at, now=cluster.now, before="last heard of")
        else:
            gpus = f" · {machine.num_busy_gpus} of {len(worker.gpus)} GPUs" if worker.gpus else ""
            st.caption(f"{machine.used_cpus} of {worker.cpus} CPU slots{gpus}", width="content")


def _row() -> AbstractContextManager[object]:
    """A name to the left and a figure to the right, one above the other where the page is narrow."""
    return st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center")


def _first_steps(view: Overview) -> None:
    st.write("Nothing has run yet. Three steps lead to a trained model:")
    data, run, watch = st.columns(3)
    with data, st.container(border=True, height="stretch", key="step_data"):
        st.markdown("**1 · Bring data**" + (" — done" if view.has_data else ""))
        st.write("Images with questions and answers, conversations or preferences: as files, an archive, or a path.")
        st.page_link("app_pages/datasets.py", label="Data sets")
    with run, st.container(border=True, height="stretch", key="step_run"):
        st.markdown("**2 · Start a run**")
        st.write("Choose a goal, a model, data and rewards. What it will need is checked while you fill it in.")
        st.page_link("app_pages/new_run.py", label="New run")
    with watch, st.container(border=True, height="stretch", key="step_watch"):
        st.markdown("**3 · Watch it learn**")
        st.write("Curves grow here while it runs; stop it, go on later, compare it with others.")
        st.page_link("app_pages/runs.py", label="Runs")
    if not view.cluster.alive:
        no_worker()


st.title("Home")
show()
