"""The page Cluster: machines and what they hold, pools and what is free, the queue and what each job waits for."""

from __future__ import annotations

import streamlit as st

from console import context
from console.components.asking import answered, ask, asked
from console.components.once import say_once, tell_once
from console.components.parts import attempted, no_worker, part
from console.components.runs import waiting_row
from console.components.text import age, job_link, literal
from console.services.formats import count_text
from console.services.machines import ClusterView, Machine, cluster_view
from mmrl.jobs.accounts import is_admin
from mmrl.jobs.operating import drain, set_capacity
from mmrl.jobs.records import Pool
from mmrl.jobs.users import Users

_EVERY_S = 3
_DRAIN, _CAPACITY = "drain_worker", "limit_pools"
_SILENT = (
    "It has not been heard of for a lease: its machine or its process may be gone. "
    "Its runs go on, or start again, under another worker."
)
_CONDITIONS = {"active": "green", "draining": "orange", "silent": "red"}


@st.fragment(run_every=_EVERY_S)
def show() -> None:
    with part("the cluster"):
        view = cluster_view(context.jobs(), context.fleet())
        may_change = is_admin(Users(context.database()), context.viewer())
        if not view.machines and not view.num_waiting:
            _nothing_yet()
            return
        _figures(view)
        st.subheader("Workers")
        if not view.alive:
            no_worker()
        for machine in view.machines:
            _machine(machine, view, may_change=may_change)
        _pools(view, may_change=may_change)
        _queue(view)


def _figures(view: ClusterView) -> None:
    cpus = sum(machine.worker.cpus for machine in view.alive)
    gpus = sum(len(machine.gpu_jobs) for machine in view.alive)
    tiles = [
        ("Workers", count_text(len(view.alive)), "Processes that take jobs, heard of lately."),
        ("CPU slots in use", _share(sum(each.used_cpus for each in view.alive), cpus), "A run takes one or more."),
        ("GPUs in use", _share(sum(each.num_busy_gpus for each in view.alive), gpus), "Given whole to one run."),
        ("Waiting", count_text(view.num_waiting), "Jobs in the queues of all pools."),
    ]
    with st.container(horizontal=True, key="figures"):
        for label, value, meaning in tiles:
            st.metric(label, value, help=meaning, border=True)


def _machine(machine: Machine, view: ClusterView, *, may_change: bool) -> None:
    worker = machine.worker
    with st.container(border=True, key=f"worker_{worker.id}", gap="xsmall"):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
                st.markdown(f"**{literal(worker.host)}**", width="content")
                st.badge(machine.condition, color=_CONDITIONS[machine.condition])  # type: ignore[arg-type]
                about = [f"pool {worker.pool}", f"process {worker.pid}", worker.version]
                st.caption(literal(" · ".join(text for text in about if text)), width="content")
                age(worker.heartbeat_at, now=view.now, before="heard of")
            if may_change and machine.condition == "active" and st.button("Drain", key=f"drain_{worker.id}"):
                ask(_DRAIN, worker.id)
        gpus = f" · {_share(machine.num_busy_gpus, len(worker.gpus))} GPUs in use" if worker.gpus else " · no GPU"
        st.text(f"{_share(machine.used_cpus, worker.cpus)} CPU slots in use{gpus}")
        if machine.condition == "silent":
            st.text(_SILENT)
        if machine.gpu_jobs:
            _gpus(machine)
        _held(machine)


def _gpus(machine: Machine) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        for gpu, job in machine.gpu_jobs.items():
            with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", width="content"):
                st.caption(literal(gpu if job is not None else f"{gpu} free"), width="content")
                if job is not None:
                    job_link(job)


def _held(machine: Machine) -> None:
    with_gpu = {job.id for job in machine.gpu_jobs.values() if job is not None}
    others = [job for job in machine.jobs if job.id not in with_gpu]
    if others:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption("holds", width="content")
            for job in others[:20]:
                job_link(job)
            if len(others) > 20:
                st.caption(f"and {len(others) - 20} more", width="content")


def _pools(view: ClusterView, *, may_change: bool) -> None:
    if not view.pools:
        return
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.subheader("Pools", help="A job names a pool; workers take the jobs of theirs.", width="content")
        if may_change and st.button("Limit jobs at once", key="limit"):
            ask(_CAPACITY)
    columns = {
        "Pool": st.column_config.TextColumn(width="medium"),
        "Jobs held": st.column_config.NumberColumn(help="Starting, running or stopping."),
        "At most": st.column_config.NumberColumn(help="Jobs at once; empty where there is no limit."),
    }
    st.dataframe(
        [_pool_row(pool) for pool in view.pools],
        hide_index=True,
        column_config=columns,
        key="pools",
        placeholder="no limit",
    )


def _pool_row(pool: Pool) -> dict[str, str | int | None]:
    return {
        "Pool": pool.name,
        "Workers": pool.num_workers,
        "CPU slots free": pool.free_cpus,
        "CPU slots": pool.cpus,
        "GPUs free": pool.free_gpus,
        "GPUs": pool.gpus,
        "Jobs held": pool.num_held,
        "Waiting": pool.num_queued,
        "At most": pool.capacity,
    }


def _queue(view: ClusterView) -> None:
    st.subheader("Queue", help="The oldest first, with the first thing that keeps each from starting.")
    if not view.waiting:
        st.text("Nothing waits.")
    else:
        with st.container(border=True, key="queue", gap="small"):
            for waiting in view.waiting:
                waiting_row(waiting, now=view.now)
    if view.num_waiting > len(view.waiting):
        label = f"All {count_text(view.num_waiting)} that wait"
        st.page_link("app_pages/runs.py", label=label, query_params={"state": "queued"})


def _nothing_yet() -> None:
    st.write(
        "A worker takes jobs from the queue and runs them. `mmrl console` starts one beside it unless told otherwise."
    )
    no_worker()


def _share(used: int, total: int) -> str:
    return f"{count_text(used)} of {count_text(total)}"


@st.dialog("Drain this worker?", on_dismiss=answered(_DRAIN))
def _confirm_drain(worker_id: str) -> None:
    st.write("It takes nothing new and ends when its runs have ended, or handed over if it was started so.")
    st.text(f"Worker {worker_id}")
    if st.button("Drain", type="primary", key="confirm_drain"):
        with attempted():
            drain(context.fleet(), context.viewer(), worker_id)
            say_once("The worker drains; it learns so at its next beat.")
            answered(_DRAIN)()
            st.rerun()


@st.dialog("Most jobs at once", on_dismiss=answered(_CAPACITY))
def _choose_capacity() -> None:
    st.write("A pool then holds no more jobs than that, whatever its workers could. What runs is not stopped.")
    pools = {pool.name: pool.capacity for pool in context.fleet().pools()}
    pool = st.selectbox("Pool", list(pools), key="capacity_pool")
    limit = st.number_input(
        "Jobs at once",
        min_value=0,
        value=pools.get(pool),
        step=1,
        key=f"capacity_{pool}",
        placeholder="no limit",
        help="Empty for no limit.",
    )
    if st.button("Save", type="primary", key="confirm_capacity"):
        with attempted():
            set_capacity(context.fleet(), context.viewer(), pool, limit)
            say_once("The new limit holds from now on.")
            answered(_CAPACITY)()
            st.rerun()


st.title("Cluster")
tell_once()
if asked(_DRAIN):
    _confirm_drain(asked(_DRAIN))
elif asked(_CAPACITY):
    _choose_capacity()
show()
