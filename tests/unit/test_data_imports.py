"""Reading, decoding and storing data needs no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "transformers", "ray", "vllm", "streamlit", "sklearn")
CODE = f"""
import sys
import mmrl.cli.dataset
light = [name for name in ("PIL", "numpy", "pyarrow", "pydantic") if name in sys.modules]
assert not light, f"mmrl.cli.dataset imports {{light}} before a command runs"
import mmrl, mmrl.data.digits, mmrl.data.export, mmrl.data.ingest, mmrl.data.registry, mmrl.data.stream
samples = mmrl.load_dataset(sys.argv[1])
assert len(samples) == 1
heavy = [name for name in {HEAVY!r} if name in sys.modules]
assert not heavy, f"mmrl.data imports {{heavy}}"
"""


def test_reading_data_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n')
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "a.jsonl")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"MMRL_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr
