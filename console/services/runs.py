"""The table of runs: what is looked for, a page of it, and each run's line. The filter is the address of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar

from console.services.pace import Pace, pace_of
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.states import Desired, JobState

PAGE_SIZE = 25
MAX_COMPARED = 10
AGES_S = {"1h": 3600.0, "1d": 86_400.0, "7d": 7 * 86_400.0, "30d": 30 * 86_400.0}


@dataclass(frozen=True)
class RunQuery:
    """What the address of the page Runs says. Ids are those of jobs, in full.

    before, after: the page of runs older, or newer, than that one. picked: chosen runs. compared: those side by side.
    """

    NAMES: ClassVar = ("state", "kind", "q", "tag", "pool", "owner", "age", "before", "after", "pick", "compare")
    """In the address."""

    states: tuple[JobState, ...] = ()
    kind: str | None = None
    text: str = ""
    tags: tuple[str, ...] = ()
    pool: str | None = None
    owner: str | None = None
    age: str | None = None
    before: str | None = None
    after: str | None = None
    picked: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()

    @classmethod
    def of_address(cls, words: Mapping[str, str]) -> RunQuery:
        """What cannot be meant is left out: an address may be typed, or older than the page."""
        states = {state.value: state for state in JobState}
        age = words.get("age")
        return cls(
            states=tuple(states[word] for word in _listed(words.get("state")) if word in states),
            kind=words.get("kind") or None,
            text=words.get("q", ""),
            tags=_listed(words.get("tag")),
            pool=words.get("pool") or None,
            owner=words.get("owner") or None,
            age=age if age in AGES_S else None,
            before=words.get("before") or None,
            after=words.get("after") or None,
            picked=_listed(words.get("pick")),
            compared=_listed(words.get("compare"))[:MAX_COMPARED],
        )

    def address(self) -> dict[str, str]:
        """As it stands in the address, without what says nothing."""
        found = {
            "state": ",".join(self.states),
            "kind": self.kind,
            "q": self.text.strip(),
            "tag": ",".join(self.tags),
            "pool": self.pool,
            "owner": self.owner,
            "age": self.age,
            "before": self.before,
            "after": self.after,
            "pick": ",".join(self.picked),
            "compare": ",".join(self.compared),
        }
        return {name: value for name, value in found.items() if value}

    @property
    def filter(self) -> JobFilter:
        return JobFilter(
            states=self.states,
            kinds=() if self.kind is None else (self.kind,),
            text=self.text,
            tags=self.tags,
            pool=self.pool,
            owner=self.owner,
            max_age_s=None if self.age is None else AGES_S[self.age],
        )

    @property
    def is_filtered(self) -> bool:
        return self.filter != JobFilter()


@dataclass(frozen=True)
class RunLine:
    """One run as a table shows it. state: a word, see `state_word`. why: why it failed, waits or was stopped; None
    where there is nothing to say."""

    job: Job
    state: str
    why: str | None
    pace: Pace
    owner: str


@dataclass(frozen=True)
class RunsPage:
    """num_fitting: runs that fit the filter on all pages. newer, older: the queries of the pages beside this one."""

    lines: tuple[RunLine, ...]
    num_fitting: int
    newer: RunQuery | None
    older: RunQuery | None
    now: datetime


def runs_page(jobs: JobReads, query: RunQuery, *, owners: Mapping[str, str]) -> RunsPage:
    """owners: user id -> name."""
    now = datetime.fromtimestamp(jobs.database.now(), UTC)
    found = jobs.search(query.filter, limit=PAGE_SIZE + 1, before=query.before, after=query.after)
    goes_up = query.after is not None
    has_more = len(found) > PAGE_SIZE
    shown = (found[1:] if goes_up else found[:-1]) if has_more else found
    is_first = (query.before is None and not goes_up) or (goes_up and not has_more)
    is_last = not has_more and not goes_up
    here = replace(query, before=None, after=None)
    newer = None if is_first or not shown else replace(here, after=shown[0].id)
    older = None if is_last or not shown else replace(here, before=shown[-1].id)
    lines = tuple(run_line(jobs, job, now=now, owners=owners) for job in shown)
    return RunsPage(lines, jobs.count(query.filter), newer, older, now)


def run_line(jobs: JobReads, job: Job, *, now: datetime, owners: Mapping[str, str]) -> RunLine:
    return RunLine(
        job, state_word(job), why(jobs, job), pace_of(jobs, job, now), owners.get(job.owner_id, job.owner_id)
    )


def state_word(job: Job) -> str:
    """The state, or what it is about to become where something else is wanted of it."""
    if job.is_held and job.desired is not Desired.RUN:
        return "pausing" if job.desired is Desired.PAUSE else "stopping"
    return str(job.state)


def why(jobs: JobReads, job: Job) -> str | None:
    """The cause of a failure, or what a run waits for."""
    if job.state in (JobState.FAILED, JobState.LOST) or (job.state is JobState.CANCELLED and job.error_message):
        if job.state is JobState.LOST:
            return "Its worker has not been heard of; another one adopts the run, or starts it again."
        return job.error_message or "It failed without a word; its log may say more."
    if job.state not in (JobState.QUEUED, JobState.STARTING):
        return None
    reason = jobs.why_pending(job)
    return reason.message if job.state is JobState.QUEUED or reason.code == "fetching" else None


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in (text or "").split(",") if word))
