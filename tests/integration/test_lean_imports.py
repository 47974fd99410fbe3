"""What a process that loads a model leaves out of memory."""

from __future__ import annotations

import json
import subprocess
import sys

SHOW = """
import json, sys, torch
import mmrl.models.policy
left_out = {"sklearn", "scipy", "pandas", "pyarrow", "boto3"} | (set() if torch.cuda.is_available() else {"triton"})
from transformers.utils import is_scipy_available, is_sklearn_available
loaded = sorted(left_out & set(sys.modules))
import boto3, torch._dynamo
from accelerate.utils.imports import is_boto3_available
print(json.dumps([loaded, is_scipy_available(), is_sklearn_available(), is_boto3_available(),
                  hasattr(boto3, "client")]))
"""


def test_loading_models_imports_no_library_that_is_never_called():
    output = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, timeout=300)
    loaded, *available = json.loads(output.stdout.splitlines()[-1])
    assert loaded == []
    assert available == [True] * 4, "whoever asks afterwards hears the truth"
