"""What the console's process never loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "ray", "vllm")


def loaded(code: str, names: tuple[str, ...]) -> str:
    words = f"import sys\n{code}\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def imports(folder: str) -> str:
    modules = [f"console.{folder}.{path.stem}" for path in sorted((ROOT / "console" / folder).glob("[a-z]*.py"))]
    assert len(modules) > 3
    return "import " + ", ".join(modules)


def test_services_import_neither_streamlit_nor_torch() -> None:
    assert loaded(imports("services"), ("streamlit", *HEAVY)) == "[]"


def test_no_component_brings_torch_along() -> None:
    assert loaded(f"{imports('components')}, console.context, console.gate, console.server", HEAVY) == "[]"


def test_what_pages_need_is_loaded_before_the_first_is_opened() -> None:
    sources = [ast.parse(path.read_text()) for path in (ROOT / "console" / "app_pages").glob("[a-z]*.py")]
    nodes = [node for source in sources for node in ast.walk(source)]
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    wanted = ("altair", "pandas", *sorted(named - {"__future__"}))
    found = loaded("from console.warming import load_what_pages_need\nload_what_pages_need()", (*wanted, *HEAVY))
    assert found == str(list(wanted))
