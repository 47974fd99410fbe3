"""A local MLflow server receives a run, also after it was killed and resumed: nothing dropped, nothing doubled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from mlflow.tracking import MlflowClient

from mmrl.config import RunConfig, dump_yaml
from mmrl.runs.tracker_base import SampleRow
from mmrl.runs.trackers import Trackers
from mmrl.runs.writer import RunWriter

CONFIG = RunConfig.model_validate(
    {
        "name": "digits",
        "model": {"path": "m"},
        "data": {"train": "d"},
        "reward": [{"type": "function", "path": "judge.py", "arguments": {"api_key": "sk-very-secret"}}],
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an MLflow server that this module started."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'db'}", "--artifacts-destination", str(folder / "files")]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 120
    try:
        while True:
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            try:
                if httpx.get(f"{address}/health", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.3)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def attempt(run_dir: Path, steps: range, value: float, *, begin: int, state: str) -> list[str]:
    """One attempt that goes on after step `begin` and tracks `reward/mean`; returns its warnings."""
    writer = RunWriter.create(run_dir, config_yaml=dump_yaml(CONFIG), resume=True)
    writer.begin(begin, total_steps=10)
    warnings: list[str] = []
    trackers = Trackers.start(["mlflow"], run_dir=run_dir, config=CONFIG, warn=warnings.append)
    for step in steps:
        metrics = {"reward/mean": value + step, "pass@4": 0.5, "kl": float("nan")}
        writer.metrics(step, metrics)
        trackers.log(step, metrics)
    row = SampleRow(steps[-1], "eval", "user: Which?", (Path("a/b.png"),), "7", "\\boxed{7}", 1.0, {"exact": 1.0})
    trackers.samples([row])
    trackers.finish(state)  # type: ignore[arg-type]
    return warnings


def test_c11_a_resumed_run_is_one_mlflow_run_with_replayed_steps_as_a_segment_of_their_own(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved after 4, killed after 6, resumed: 5 and 6 come again, then 7 and 8."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    assert attempt(tmp_path, range(1, 7), 0.0, begin=0, state="failed") == []
    first_id = (tmp_path / "mlflow-id").read_text()
    assert attempt(tmp_path, range(5, 9), 100.0, begin=4, state="succeeded") == []
    assert (tmp_path / "mlflow-id").read_text() == first_id
    client = MlflowClient(tracking_uri=server)

    def history(name: str) -> list[tuple[int, float]]:
        return sorted((point.step, point.value) for point in client.get_metric_history(first_id, name))

    assert history("reward/mean") == [(step, float(step)) for step in range(1, 7)] + [(7, 107.0), (8, 108.0)]
    assert history("segment_2/reward/mean") == [(5, 105.0), (6, 106.0)]
    assert [step for step, _ in history("pass_4")] == list(range(1, 9))
    run = client.get_run(first_id)
    assert (run.info.status, run.info.run_name, run.data.tags["state"]) == ("FINISHED", "digits", "succeeded")
    assert run.data.params["model.path"] == "m"
    assert [file.path for file in client.list_artifacts(first_id, "samples/eval")] == [
        "samples/eval/segment-1",
        "samples/eval/segment-2",
    ]


def test_x07_no_secret_reaches_mlflow(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    attempt(tmp_path / "run", range(1, 2), 0.0, begin=0, state="succeeded")
    client = MlflowClient(tracking_uri=server)
    run_id = (tmp_path / "run" / "mlflow-id").read_text()
    files = Path(client.download_artifacts(run_id, "", str(tmp_path)))
    told = str(client.get_run(run_id).data) + "".join(path.read_text() for path in files.rglob("*") if path.is_file())
    assert "judge.py" in told
    assert "sk-very-secret" not in told


def test_without_a_server_the_run_directory_holds_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert attempt(tmp_path, range(1, 3), 0.0, begin=0, state="succeeded") == []
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    points = client.get_metric_history((tmp_path / "mlflow-id").read_text(), "reward/mean")
    assert [(point.step, point.value) for point in points] == [(1, 1.0), (2, 2.0)]


def test_a_server_that_is_away_costs_a_warning_and_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (warning,) = attempt(tmp_path, range(1, 3), 0.0, begin=0, state="succeeded")
    assert warning.startswith("tracker mlflow failed and is left out from here on: ")
