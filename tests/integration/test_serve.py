"""`mmrl serve` on a checkpoint: answers as the model does, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from mmrl.errors import ConflictError, RunFailedError
from mmrl.serving.server import ServeSettings, command, serving


def test_the_command_line_is_the_module_form(tmp_path: Path) -> None:
    settings = ServeSettings(tmp_path, "run@3", extra=("--max-model-len", "64"))
    words = command(settings, 1234, on_cpu=True)
    assert words[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert words[-3:] == ["--enforce-eager", "--max-model-len", "64"]
    assert words[words.index("--dtype") + 1] == "float32"
    on_gpu = command(settings, 1234, on_cpu=False)
    assert on_gpu[on_gpu.index("--dtype") + 1] == "auto"
    assert "--enforce-eager" not in on_gpu


def test_a_port_in_use_and_a_folder_without_a_model_are_told(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = ServeSettings(tmp_path, "m", port=taken.getsockname()[1])
        with pytest.raises(ConflictError, match="cannot be used"), serving(settings):
            pass


@pytest.mark.vllm
def test_a_server_answers_and_ends_with_all_its_processes(tiny_model: Any) -> None:
    words = [sys.executable, "-m", "mmrl", "serve", str(tiny_model()), "--port", "0", "--name", "tiny", "--json"]
    words += ["--", "--max-model-len", "256", "--limit-mm-per-prompt", '{"image": 1, "video": 0}']
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    text = ""
    while "}" not in text:
        line = process.stdout.readline()
        assert line, process.communicate()[1][-3000:]
        text += line
    told = json.loads(text)
    children = psutil.Process(told["pid"]).children(recursive=True)
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Which digit?"}],
        "max_tokens": 4,
        "temperature": 0,
    }
    answer = httpx.post(f"{told['url']}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 4
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert not psutil.pid_exists(told["pid"])
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@pytest.mark.vllm
def test_what_vllm_cannot_load_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    settings = ServeSettings(tmp_path, "m", wait_s=120)
    with pytest.raises(RunFailedError, match=r"vLLM ended with exit code \d+ before it answered:"), serving(settings):
        pass
