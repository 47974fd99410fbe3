"""`mmrl checkpoint list|export`, and that the commands which read runs load no torch."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from runs_builders import begin_run

from mmrl.cli.app import main
from mmrl.runs.checkpoint_refs import ModelRef


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    begin_run(tmp_path / "run")
    for step, reward in ((100, 0.5), (200, 0.75)):
        folder = tmp_path / "run" / "checkpoints" / f"step-{step:06d}"
        folder.mkdir()
        files = {"model/model.safetensors": {"bytes": 3 * 2**20, "sha256": "0"}}
        manifest = {"schema_version": 1, "step": step, "metrics": {"eval/reward": reward}, "files": files}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "run" / "checkpoints" / "step-000300").mkdir()
    return tmp_path / "run"


def test_list_shows_whole_checkpoints(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    assert main(["checkpoint", "list", str(run_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "step": step,
            "path": str(run_dir / "checkpoints" / f"step-{step:06d}"),
            "num_bytes": 3 * 2**20,
            "metrics": {"eval/reward": reward},
            "is_pinned": False,
        }
        for step, reward in ((100, 0.5), (200, 0.75))
    ]
    assert main(["checkpoint", "list", str(run_dir)]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["step", "MiB", "eval/reward", "pinned", "path"]
    assert first.split()[:3] == ["100", "3.0", "0.5"]
    assert second.split()[0] == "200"


def test_a_run_without_checkpoints_lists_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    begin_run(tmp_path)
    assert main(["checkpoint", "list", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["checkpoint", "list", str(tmp_path)]) == 0
    assert "no checkpoint was written yet" in capsys.readouterr().err


def test_the_k_of_an_evaluation_go_to_its_settings(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    words = ["--samples", "2", "--temperature", "1", "--k", "1", "--k", "4"]
    assert main(["checkpoint", "evaluate", str(run_dir), *words]) == 2
    assert "pass@4 needs at least 4 responses a prompt, and samples_per_prompt is 2" in capsys.readouterr().err


def test_export_prints_the_folder(
    capsys: pytest.CaptureFixture[str], run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def export_checkpoint(
        ref: ModelRef, out: Path, *, form: str, compare_answers: bool, say: Callable[[str], None]
    ) -> Path:
        assert form == "merged"
        calls.append((ref.model, ref.step, out, compare_answers))
        return out

    exporting = types.ModuleType("mmrl.trainer.export")
    exporting.export_checkpoint = export_checkpoint  # type: ignore[attr-defined]
    exporting.ExportForm = str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mmrl.trainer.export", exporting)
    out = tmp_path / "model"
    assert main(["checkpoint", "export", str(run_dir), "--step", "100", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert main(["checkpoint", "export", str(run_dir), "--step", "100", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"step": 100, "path": str(out)}
    assert main(["checkpoint", "export", f"{run_dir}@best", "--skip-answers", "--out", str(out)]) == 0
    folders = [run_dir / "checkpoints" / f"step-{step:06d}" / "model" for step in (100, 200)]
    assert calls == [(folders[0], 100, out, True)] * 2 + [(folders[1], 200, out, False)]


def test_a_pinned_checkpoint_is_shown_as_such_until_it_is_unpinned(
    capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    def pinned() -> list[bool]:
        capsys.readouterr()
        assert main(["checkpoint", "list", str(run_dir), "--json"]) == 0
        return [point["is_pinned"] for point in json.loads(capsys.readouterr().out)]

    assert main(["checkpoint", "pin", str(run_dir), "--step", "100", "--why", "for the paper"]) == 0
    assert pinned() == [True, False]
    assert json.loads((run_dir / "checkpoints/step-000100/pinned.json").read_text())["note"] == "for the paper"
    assert main(["checkpoint", "unpin", str(run_dir), "--step", "100"]) == 0
    assert pinned() == [False, False]
    assert main(["checkpoint", "pin", str(run_dir), "--step", "7"]) == 3
    assert "it has those of 100, 200" in capsys.readouterr().err


def test_reading_a_run_loads_no_torch(run_dir: Path) -> None:
    script = """
import sys
from mmrl.cli.app import main
from mmrl.runs.checkpoint_refs import ModelRef
from mmrl.runs import progress_rich, tracker_tensorboard, trackers, writer
assert main(["sample", "list", sys.argv[1]]) == 0
assert main(["checkpoint", "list", sys.argv[1]]) == 0
print([name for name in ("torch", "transformers", "tensorflow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script, str(run_dir)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
