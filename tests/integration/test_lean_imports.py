"""What a process that loads a model leaves out of memory."""

from __future__ import annotations

import json
import subprocess
import sys

SHOW = """
import json, sys
import mmrl.models.policy
from transformers.utils import is_scipy_available, is_sklearn_available
print(json.dumps([sorted({"sklearn", "scipy", "pandas", "pyarrow"} & set(sys.modules)),
                  is_scipy_available(), is_sklearn_available()]))
"""


def test_loading_models_imports_no_library_that_is_never_called():
    output = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, timeout=300)
    loaded, *available = json.loads(output.stdout.splitlines()[-1])
    assert loaded == []
    assert available == [True, True], "whoever asks afterwards hears the truth"
