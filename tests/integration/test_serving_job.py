"""A checkpoint served as a job, by a worker and real vLLM: asked by the console's services, ended when nobody asks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from console.services import serving
from console.services.answers import Answers
from console.services.conversations import Column, Conversations, Sampling
from mmrl.config import NoopConfig
from mmrl.data.images import ImageStore
from mmrl.jobs.database import Database
from mmrl.jobs.from_config import job_of
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.states import JobState
from mmrl.jobs.users import Users
from mmrl.serving.endpoint import ENDPOINT_FILE

pytestmark = pytest.mark.vllm
IDLE_S = 8.0
START_S = 480.0


def _until(there: Callable[[], Any], seconds: float = START_S) -> Any:
    end = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)
    return found


def test_a_served_checkpoint_is_asked_stopped_midway_and_ends_when_nobody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: Any
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MMRL_JOBS_POLL_S", "0.1")
    monkeypatch.setattr(serving, "ServeSettings", _small)
    with Database.open() as database:
        jobs, user = Jobs(database), Users(database).local()
        run = jobs.submit(job_of(NoopConfig(name="digits")), as_draft=True)
        column = Column(run.id, 0, str(tiny_model()), "digits@0")
        job = serving.start(jobs, column, host="127.0.0.1", gpus=0)
        assert serving.start(jobs, column, host="127.0.0.1", gpus=0).id == job.id, "a double click makes one"
        assert serving.server_of(jobs, column).state == "waiting"
        words = [sys.executable, "-m", "mmrl", "worker", "start", "--until-idle", "--cpus", "2"]
        worker = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until(lambda: _is_ready(jobs, column))
            _ask(jobs, user, column, tmp_path / "home" / "conversations")
            ended = _until(lambda: jobs.get(job.id).is_terminal and jobs.get(job.id), 120)
            assert ended.state is JobState.SUCCEEDED, ended.error_message
            assert serving.server_of(jobs, column).told == "stopped by itself, since nobody asked"
            assert not (Path(job.run_dir) / ENDPOINT_FILE).exists()
            assert worker.wait(60) == 0
        finally:
            worker.terminate()
            worker.wait(60)


def _small(**settings: Any) -> Any:
    from mmrl.config.serve import ServeSettings

    return ServeSettings(**settings, idle_s=IDLE_S, kv_cache_gb=0.1, max_model_len=512, max_images=1)


def _is_ready(jobs: Jobs, column: Column) -> bool:
    server = serving.server_of(jobs, column)
    assert server.state != "failed", server.told
    return server.state == "ready"


def _ask(jobs: Jobs, user: Any, column: Column, root: Path) -> None:
    conversations, answers = Conversations(user, jobs.database.settings), Answers(root)
    job = serving.server_of(jobs, column).job
    assert job is not None
    endpoint = serving.endpoint_of(job)
    assert endpoint is not None
    _is_secret(jobs, job.id, endpoint)
    chat = conversations.begin((column,))
    image = ImageStore().add(Image.new("RGB", (56, 56), (200, 30, 30)))
    sampling = Sampling(temperature=0.0, max_tokens=8, seed=1)
    asked = conversations.ask(chat.id, "Which digit?", (image,), sampling)
    answers.start(asked, 0, [endpoint])
    _until(lambda: not answers.is_writing(chat.id), 60)
    reply = conversations.get(chat.id).turns[0].replies[0]
    assert (reply.state, reply.num_tokens, reply.error) == ("done", 8, None)
    assert reply.text
    _is_stopped_midway(conversations, answers, chat.id, endpoint)
    _is_told_why(conversations, answers, column, endpoint)


def _is_stopped_midway(conversations: Conversations, answers: Answers, chat_id: str, endpoint: Any) -> None:
    """A tiny model may end an answer by itself before anybody can stop it; another seed gives another answer."""
    for seed in range(20):
        new = conversations.begin(conversations.get(chat_id).columns)
        asked = conversations.ask(new.id, "Tell me all", (), Sampling(temperature=1.0, max_tokens=400, seed=seed))
        answers.start(asked, 0, [endpoint])
        _until(lambda: answers.now(conversations.get(new.id)).turns[0].replies[0].text, 60)  # noqa: B023
        answers.stop(new.id)
        stopped = conversations.get(new.id).turns[0].replies[0]
        if stopped.state == "stopped":
            break
    assert stopped.state == "stopped"
    assert stopped.text
    assert stopped.finish_reason is None
    _until(lambda: _num_under_way(endpoint) == 0, 10)


def _num_under_way(endpoint: Any) -> float:
    lines = httpx.get(f"{endpoint.url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


def _is_told_why(conversations: Conversations, answers: Answers, column: Column, endpoint: Any) -> None:
    """A question that the server refuses: more tokens than the model takes."""
    chat = conversations.begin((column,))
    asked = conversations.ask(chat.id, "word " * 600, (), Sampling(max_tokens=8))
    answers.start(asked, 0, [endpoint])
    _until(lambda: not answers.is_writing(chat.id), 60)
    reply = conversations.get(chat.id).turns[0].replies[0]
    assert reply.state == "failed"
    assert "512" in (reply.error or "")


def _is_secret(jobs: Jobs, job_id: str, endpoint: Any) -> None:
    """Without the key nobody is answered, and nothing that is shown of the job has it."""
    asked = {"model": endpoint.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    key = {"Authorization": f"Bearer {endpoint.key}"}
    for path, body in (
        ("/v1/chat/completions", asked),
        ("/invocations", asked),
        ("/tokenize", {"model": endpoint.model, "prompt": "Hello"}),
    ):
        assert httpx.post(f"{endpoint.url}{path}", json=body).status_code == 401, path
        assert httpx.post(f"{endpoint.url}{path}", json=body, headers=key, timeout=60).status_code == 200, path
    job = jobs.get(job_id)
    file = Path(job.run_dir) / ENDPOINT_FILE
    assert file.stat().st_mode & 0o077 == 0
    shown = json.dumps([job.config, [str(event) for event in jobs.events(job_id)]])
    written = [path.read_text(errors="replace") for path in Path(job.run_dir).rglob("*") if path.is_file()]
    assert sum(endpoint.key in text for text in written) == 1, "in the endpoint's file alone"
    assert endpoint.key not in shown
