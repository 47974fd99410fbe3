"""Freed memory stays with the process: the same tensors asked for again cost no new pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

COUNT = """
import json, resource, sys, torch
from mmrl.models.freed_memory import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else False
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    kept_alive = [torch.ones(1 << 21) for _ in range(4)]
for _ in range(10):  # until the heap has found its size
    step()
before = faults()
for _ in range(5):
    step()
print(json.dumps([kept, faults() - before]))
"""
PAGES = 5 * 4 * (8 << 20) // 4096


def run(mode, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    clean.pop("GLIBC_TUNABLES", None)
    output = subprocess.run(
        [sys.executable, "-c", COUNT, mode], env=clean | environment, capture_output=True, text=True, check=True
    )
    return json.loads(output.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own setting")
def test_the_same_tensors_again_take_no_new_pages():
    kept, faults = run("keep")
    assert kept
    assert faults < PAGES / 20
    given_back = run("leave", MALLOC_MMAP_THRESHOLD_="65536")[1]
    assert given_back > PAGES / 2, "the count itself: memory that is given back does"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own setting")
def test_what_the_environment_says_of_the_allocator_stays():
    assert run("keep", MALLOC_MMAP_THRESHOLD_="65536")[0] is False
