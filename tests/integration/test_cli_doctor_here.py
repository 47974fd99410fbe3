"""`mmrl doctor` with nothing replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmrl.cli.app import main


def test_the_doctor_finds_this_machine_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["float32 on cpu"]["detail"] == "works"
    assert checks["rollout engine hf"]["status"] == "ok"
    assert checks["disk"]["detail"].startswith(str(tmp_path))
    assert {"python", "torch", "transformers", "cpu", "memory", "tracker wandb"} <= set(checks)
