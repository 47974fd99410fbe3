"""How the kernels are compiled, kept and done without; what they compute is in test_models_fast and
test_sampling_group_cache."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mmrl.cli.checks import abilities
from mmrl.models import kernels
from mmrl.models.fast.functions import gated_product, rms_norm, rotate
from mmrl.models.fused_attention import attention
from mmrl.models.kernels import compiling


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty one, nothing compiled in this process, and compilation that takes no time."""
    monkeypatch.setattr(compiling, "_FLAGS", ("-O0", *compiling._FLAGS[1:]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiling.compiled.cache_clear()
    kernels._kernels.cache_clear()
    yield tmp_path / "cache" / "mmrl" / "kernels"
    compiling.compiled.cache_clear()
    kernels._kernels.cache_clear()


def norm() -> torch.Tensor:
    torch.manual_seed(0)
    return rms_norm(torch.randn(3, 8), torch.randn(8), 1e-6)


def test_they_are_compiled_here_and_take_tensors_of_float32_on_the_cpu_only() -> None:
    assert kernels.can_use(torch.ones(2), torch.nn.Parameter(torch.ones(2)))
    assert not kernels.can_use(torch.ones(2), torch.ones(2, dtype=torch.bfloat16))
    assert not kernels.can_use(torch.ones(2, dtype=torch.float64))
    assert not kernels.can_use(torch.ones(2, device="meta"))


def test_a_library_is_compiled_once_and_then_taken_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiling.compiled().library is not None
    (library,) = cache.iterdir()
    compiling.compiled.cache_clear()
    monkeypatch.setattr(compiling, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compiling.compiled().library is not None
    assert list(cache.iterdir()) == [library]


def test_a_library_that_cannot_be_loaded_is_compiled_again(cache: Path) -> None:
    cache.mkdir(parents=True)
    broken = cache / compiling._name(compiling._compiler())
    broken.write_bytes(b"\x7fELF cut short")
    assert compiling.compiled().library is not None
    assert broken.stat().st_size > 10_000


def test_where_no_cache_can_be_written_the_library_is_the_processs_own(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert compiling.compiled().library is not None
    assert kernels.can_use(torch.ones(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo kernels.c: no such instruction >&2; exit 1", "no such instruction"),
        ("printf 'fehler f\\374r \\303' >&2; exit 1", "fehler f\ufffdr"),
        ("exit 0", "cannot open shared object"),
        ("echo Apple clang version 17; exit 0", "this is clang"),
    ],
)
def test_a_compiler_that_fails_is_told_and_torch_takes_over(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    script: str,
    told: str,
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    expected = norm()
    kept = list(cache.iterdir())
    compiling.compiled.cache_clear()
    kernels._kernels.cache_clear()
    monkeypatch.setenv("CC", str(compiler))
    with caplog.at_level(logging.WARNING):
        assert torch.allclose(norm(), expected, atol=1e-6)
        norm()
    assert not kernels.can_use(torch.ones(1))
    (record,) = caplog.records
    assert str(compiler) in record.getMessage()
    check = abilities.check_kernels()
    assert check.status == "warn"
    assert told in check.detail
    assert list(cache.iterdir()) == kept
    assert "gcc libc6-dev" in check.fix


def test_without_a_compiler_the_doctor_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    check = abilities.check_kernels()
    assert check.status == "warn"
    assert "there is no C compiler (gcc, cc)" in check.detail


def test_a_variable_for_the_compiler_that_is_no_command_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc '-pipe")
    check = abilities.check_kernels()
    assert check.status == "warn"
    assert "CC=gcc '-pipe is no command: No closing quotation" in check.detail


def test_with_one_the_doctor_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    check = abilities.check_kernels()
    assert (check.status, check.detail) == ("ok", compiling.compiled().detail)


def test_processes_that_start_together_all_get_a_whole_library(cache: Path) -> None:
    program = "import torch; from mmrl.models import kernels; print(kernels.can_use(torch.ones(1)))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in started] == ["True", "True"]
    assert [path.suffix for path in cache.iterdir()] == [".so"]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_gradient_of_a_norms_weight_adds_up_the_rows_of_every_thread(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)
        x, weight = torch.randn(50, 200, requires_grad=True), torch.randn(200, requires_grad=True)
        rms_norm(x, weight, 1e-6).backward(torch.ones(50, 200))
        normed = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
        assert torch.allclose(weight.grad.double(), normed.sum(0), atol=1e-4)
    finally:
        torch.set_num_threads(before)


def test_results_have_the_type_of_what_was_given_whatever_torchs_default_is() -> None:
    x, query = torch.randn(3, 32), torch.randn(1, 2, 3, 16, requires_grad=True)
    torch.set_default_dtype(torch.float64)
    try:
        assert rms_norm(x, torch.ones(32, dtype=torch.float32), 1e-6).dtype == torch.float32
        assert gated_product(x, x).dtype == torch.float32
        assert rotate(x.view(1, 3, 2, 16), *[torch.ones(1, 3, 1, 16, dtype=torch.float32)] * 2).dtype == torch.float32
        attention(query, query, query, None, is_causal=True, scaling=None).sum().backward()
        assert query.grad is not None
        assert query.grad.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_variable_for_the_compiler_may_hold_arguments(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "env gcc -pipe")
    compiled = compiling.compiled()
    assert compiled.library is not None
    assert compiled.detail == "compiled by env gcc -pipe"


def test_what_would_be_read_outside_of_a_tensor_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"a weight of \(1,\) for features of \(2, 8\)"):
        kernels.rms_norm(torch.ones(2, 8), torch.ones(1), 1e-6)
    with pytest.raises(AssertionError, match=r"a gate of \(2, 8\) for \(2, 4\)"):
        kernels.silu_mul(torch.ones(2, 8), torch.ones(2, 4))
    x, weight = torch.ones(2, 8, requires_grad=True), torch.ones(8, requires_grad=True)
    result = rms_norm(x, weight, 1e-6)
    weight.data.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"memory of a tensor \(8,\) was freed"):
        result.sum().backward()
