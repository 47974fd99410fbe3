"""How much YAML is read of people: what lies beyond is refused while it is scanned, before it costs time or memory."""

from __future__ import annotations

from typing import Any

from ruamel.yaml.scanner import Scanner

MAX_NODES = 20_000
MAX_CHARACTERS = 2_000_000
MAX_STORED_BYTES = MAX_CHARACTERS // 2
"""Of a resolved config; its trainer reads it as YAML, in which it is longer."""
MAX_DEPTH = 100
"""Of brackets in each other; the scanner's time grows with the square of it. Indentation is bounded by the stack."""
_MAX_TOKENS = 8 * MAX_NODES
"""More than a text of MAX_NODES values has: two scalars and three marks each."""


class TooMuchError(Exception):
    """line: counted from 1."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


class BoundedScanner(Scanner):
    """Raises TooMuchError."""

    num_tokens = 0

    def fetch_more_tokens(self) -> Any:
        self.num_tokens += 1
        if self.num_tokens > _MAX_TOKENS:
            raise self._error(f"more than {MAX_NODES:,} values; put data into files and name those")
        return super().fetch_more_tokens()

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:
        if len(self.flow_context) >= MAX_DEPTH:
            raise self._error(f"maps and lists stand too deep in each other: more than {MAX_DEPTH} brackets are open")
        super().fetch_flow_collection_start(TokenClass, to_push)

    def _error(self, problem: str) -> TooMuchError:
        return TooMuchError(problem, self.reader.line + 1)
