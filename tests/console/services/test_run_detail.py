"""One run: history as sentences, config, lineage, hardware, checkpoints, samples, logs; whole and broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from console_reads import desk_in
from homes import NASTY, Home
from job_rows import new_job

from console.services import logs, run_checkpoints
from console.services.event_words import event_line
from console.services.run_detail import config_view, hardware, history, lineage, run_head
from console.services.sample_glance import glance
from mmrl.errors import ConfigError, DataError, NotFoundError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.fetching import FETCHING
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease
from mmrl.runs.pins import is_pinned

Homes = Callable[[str], Home]


def test_a_head_tells_state_pace_and_what_can_be_done(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        head = run_head(desk.jobs, desk.home.jobs["running"], desk.viewer)
        assert (head.state, head.owner, head.may_act) == ("running", desk.viewer.name, True)
        assert head.pace.left_s == pytest.approx(68.0)
        viewer = desk.as_user("viewer")
        assert not run_head(viewer.jobs, desk.home.jobs["running"], viewer.viewer).may_act
        with pytest.raises(NotFoundError):
            run_head(desk.jobs, "no-such-run", desk.viewer)


def test_history_is_sentences_the_newest_first(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        lines = history(desk.jobs, desk.job("succeeded"))
        texts = [line.text for line in lines]
        who = desk.viewer.name
        assert texts[0] == f"{who} set the tags to baseline and wrote the note “the first that learned”."
        assert "Checkpoint written at step 100." in texts
        assert texts[-1] == f"{who} submitted the run."
        failed = history(desk.jobs, desk.job("failed"))
        assert any(line.tone == "bad" and "no number in 'grey'" in line.text for line in failed)
        assert len(history(desk.jobs, desk.job("succeeded"), limit=2)) == 2


def test_no_cause_that_the_job_system_writes_lacks_a_sentence(shared_home: Homes) -> None:
    from console.services.event_words import _TOLD
    from mmrl.jobs.states import TRANSITIONS

    causes = {cause for targets in TRANSITIONS.values() for each in targets.values() for cause in each}
    assert causes - {"preempt"} <= _TOLD.keys()
    with desk_in(shared_home("broken")) as desk:
        event = desk.jobs.events(desk.home.jobs["failed"])[-1]
        assert event_line(event, people={}).text


def test_a_run_that_starts_tells_what_it_still_fetches(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        job = desk.job("starting")
        assert run_head(desk.jobs, job.id, desk.viewer).why is None
        assert job.worker_id is not None
        lease = Lease(job.id, job.worker_id, job.lease_epoch, job.attempt, "", (), job)
        told = {"message": "fetches the whole run of job x (sft) from s3://team/x"}
        Leases(desk.jobs.database, job.worker_id).event(lease, FETCHING, told)
        why = run_head(desk.jobs, job.id, desk.viewer).why or ""
        assert why.startswith("fetches the whole run of job x (sft) from s3://team/x, since ")
        line = history(desk.jobs, job)[0]
        assert line.text == "Before it starts it fetches the whole run of job x (sft) from s3://team/x."


def test_a_config_shows_what_was_set_and_what_a_child_changed(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        view = config_view(desk.jobs, desk.job("running"))
        origins = {line.key: (line.value, line.origin) for line in view.lines}
        assert origins["optim.lr"] == ("0.0001", "set")
        assert origins["optim.betas" if "optim.betas" in origins else "seed"][1] == "default"
        assert "lr: 0.0001" in view.yaml
        assert view.parent is None
        child = desk.jobs.retry(desk.home.jobs["failed"])
        view = config_view(desk.jobs, child)
        assert view.parent is not None
        assert (view.parent.name, view.differences) == ("failed", ())
        problem = config_view(desk.jobs, desk.job("no-worker"))
        assert "noop.seconds" in (problem.problem or "")
        assert "seconds" in problem.yaml


def test_a_secret_in_a_config_is_in_no_view(fresh_home: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk_in(fresh_home("empty")) as desk:
        config = {"name": "keyed", "kind": "noop", "judge": {"api_key": "env:KEY", "url": "http://ann:pw1234@host/"}}
        try:
            job = desk.jobs.submit(new_job("keyed", config=config))
        except ConfigError:
            config["judge"] = {"api_key": "env:KEY"}
            job = desk.jobs.submit(new_job("keyed", config=config))
        monkeypatch.setenv("KEY", "sk-0123456789abcdefghij")
        assert "pw1234" not in config_view(desk.jobs, job).yaml
        assert "sk-0123456789abcdefghij" not in str(config_view(desk.jobs, job))


def test_lineage_goes_both_ways(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        child = desk.jobs.resume(desk.home.jobs["failed"])
        assert [job.name for job in lineage(desk.jobs, child).ancestors] == ["failed"]
        assert [job.id for job in lineage(desk.jobs, desk.job("failed")).children] == [child.id]
        assert child.resume_checkpoint is not None


def test_hardware_names_worker_attempts_and_gpus(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        found = hardware(desk.jobs, desk.job("running"))
        assert found.worker is not None
        assert (found.worker.host, [each.attempt for each in found.attempts]) == ("host", [1])
        assert hardware(desk.jobs, desk.job("draft")).worker is None


def test_checkpoints_tell_the_best_by_the_runs_own_rule(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        table = run_checkpoints.checkpoint_table(desk.jobs, desk.job("succeeded"))
        assert table.metric == "eval/reward"
        assert [(line.row.step, line.is_best, line.is_here) for line in table.lines] == [
            (100, True, True),
            (50, False, True),
        ]


def test_keeping_a_checkpoint_is_for_those_who_may_and_is_undone(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        job = desk.job("succeeded")
        folder = Path(run_checkpoints.checkpoint_of(desk.jobs, job, 50).uri)
        member = desk.as_user("member")
        with pytest.raises(ForbiddenError):
            run_checkpoints.keep(member.jobs, job, 50, member.viewer, is_kept=True)
        run_checkpoints.keep(desk.jobs, job, 50, desk.viewer, is_kept=True, note="for the paper")
        assert is_pinned(folder)
        assert [line.is_kept for line in run_checkpoints.checkpoint_table(desk.jobs, job).lines] == [False, True]
        run_checkpoints.keep(desk.jobs, job, 50, desk.viewer, is_kept=False)
        assert not is_pinned(folder)
        with pytest.raises(NotFoundError, match="it has: 50, 100"):
            run_checkpoints.keep(desk.jobs, job, 70, desk.viewer, is_kept=True)


def test_evaluating_and_exporting_submit_one_job_each_that_the_lineage_names(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        job = desk.job("succeeded")
        uri = run_checkpoints.checkpoint_of(desk.jobs, job, 100).uri
        made = [run_checkpoints.use(desk.jobs, job, 100, "evaluate", num_made=0) for _ in range(2)]
        assert made[0].id == made[1].id
        config = made[0].config
        assert (made[0].kind, config["model"]["path"], config["data"]["eval"]) == (
            "evaluate",
            uri,
            job.config["data"]["eval"],
        )
        assert [part["type"] for part in config["reward"]] == [part["type"] for part in job.config["reward"]]
        assert run_checkpoints.made_of(desk.jobs, job, 100, "evaluate") == 1
        export = run_checkpoints.use(desk.jobs, job, 100, "export", num_made=0)
        assert (export.kind, export.config["model"]["path"]) == ("export", uri)
        assert {each.id for each in lineage(desk.jobs, job).uses} == {made[0].id, export.id}
        viewer = desk.as_user("viewer")
        with pytest.raises(ForbiddenError):
            run_checkpoints.use(viewer.jobs, job, 100, "export", num_made=1)


def test_samples_are_counted_and_a_few_of_the_last_are_shown(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        found = glance(desk.jobs, desk.job("succeeded"))
        assert found.split == "train"
        assert found.num_rows == {"train": 80, "eval": 16}
        assert (len(found.rows), {row.step for row in found.rows}) == (5, {100})
        assert found.rows[0].prompt == "Which colour is shape 0?"
        assert glance(desk.jobs, desk.job("draft")).num_rows == {}


def test_what_is_gone_is_said_and_nothing_else_fails(shared_home: Homes) -> None:
    with desk_in(shared_home("broken")) as desk:
        with pytest.raises(NotFoundError, match="is not on this machine, so its logs cannot be read here"):
            logs.logs_of(desk.jobs, desk.job("no-folder"))
        assert logs.logs_of(desk.jobs, desk.job("never-started")) == []
        with pytest.raises(DataError, match="is gone"):
            glance(desk.jobs, desk.job("no-folder"))
        with pytest.raises(DataError, match="cannot be read as samples"):
            glance(desk.jobs, desk.job("half-written"))
        for name in desk.home.jobs:
            job = desk.job(name)
            assert run_head(desk.jobs, job.id, desk.viewer).job == job
            assert history(desk.jobs, job)
            assert config_view(desk.jobs, job).yaml
            lineage(desk.jobs, job)
            hardware(desk.jobs, job)
        table = run_checkpoints.checkpoint_table(desk.jobs, desk.job("no-checkpoint"))
        assert [line.is_here for line in table.lines] == [False]
        assert NASTY in (run_head(desk.jobs, desk.home.jobs["failed"], desk.viewer).why or "")


def test_logs_are_chosen_by_attempt_and_name(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        files = logs.logs_of(desk.jobs, desk.job("failed"))
        assert [file.name for file in files] == ["stderr.log", "stdout.log"]
        assert logs.chosen(files, None, "stdout.log") == files[1]
        assert logs.chosen(files, 9, "nothing") == files[0]
        assert logs.chosen([], None, None) is None
        assert "no number in 'grey'" in logs.tail(files[0]).text
        assert logs.search(files[0], "TRACEBACK").matches[0].offset == 0
        assert logs.logs_of(desk.jobs, desk.job("draft")) == []


def test_log_text_loses_what_a_terminal_would_obey_and_overwritten_progress() -> None:
    assert logs.shown("10 %\r50 %\r100 %\ndone\x1b[31m\n") == "100 %\ndone\\x1b[31m\n"
    assert logs.shown("line\r\n") == "line\n"


def test_services_bring_neither_streamlit_nor_torch() -> None:
    import subprocess
    import sys

    modules = [
        "runs",
        "run_detail",
        "run_actions",
        "run_checkpoints",
        "curves",
        "comparing",
        "logs",
        "sample_glance",
        "metric_words",
    ]
    imports = "; ".join(f"import console.services.{name}" for name in modules)
    program = f"{imports}; import sys; assert not {{'torch', 'streamlit'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
