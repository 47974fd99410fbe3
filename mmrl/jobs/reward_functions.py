"""Reward functions that people brought: versions of Python files, as rows of the table `reward_fns`.

    <home>/rewards/<name>/<version>.py      its source; a version is named by the hash of it and is never changed

Nothing here runs the code or imports it: what it takes is read from its text.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mmrl.config.base import home
from mmrl.data.files import NAME_PATTERN, write_bytes
from mmrl.errors import ConfigError, NotFoundError
from mmrl.jobs import tables_catalogue as tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.ids import new_id
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed

MAX_BYTES = 1_000_000
DOCUMENTED = ("response", "answer", "sample", "images", "meta", "num_tokens", "finish_reason")
"""Arguments that mmrl fills in; a function's others are its settings."""


@dataclass(frozen=True)
class Setting:
    """An argument of a function's own. default: as Python text, None where it has none."""

    name: str
    default: str | None


@dataclass(frozen=True)
class RewardFunction:
    """A version. entrypoint: PATH:FUNCTION. takes: which of DOCUMENTED. settings: its other arguments."""

    id: str
    name: str
    version: str
    entrypoint: str
    source_sha256: str
    about: str
    takes: tuple[str, ...]
    settings: tuple[Setting, ...]
    owner_id: str | None
    created_at: datetime

    @property
    def path(self) -> Path:
        return Path(self.entrypoint.rpartition(":")[0])

    @property
    def function(self) -> str:
        return self.entrypoint.rpartition(":")[2]

    def source(self) -> str:
        """Raises NotFoundError where its file is gone, ConfigError where it is not what was brought."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise NotFoundError(f"the file of reward {self.name} {self.version} is gone: {self.path}") from error
        if hashlib.sha256(content).hexdigest() != self.source_sha256:
            raise ConfigError(f"{self.path} was changed since it was brought; bring it again as a version of its own")
        return content.decode("utf-8")


class RewardFunctions:
    """actor: in whose name. Only who may run code of their own may bring any."""

    def __init__(self, database: Database, actor: User, *, root: Path | None = None) -> None:
        self._database, self._actor = database, actor
        self._root = root if root is not None else home().absolute() / "rewards"

    def add(self, name: str, source: str, function: str | None = None) -> RewardFunction:
        """A new version; the same source and function of a name are the version that is there.

        function: which of the file's; the only one, or the one named `score`, if it is not told.
        Raises ForbiddenError, ConfigError for a bad name, for text that is no Python, or has no such function.
        """
        check_allowed(self._actor, "code", settings=self._database.settings)
        if not NAME_PATTERN.fullmatch(name):
            raise ConfigError(f"name of a reward: letters, digits, `.`, `-` and `_` (got {name!r})")
        content = source.encode("utf-8", "surrogatepass")
        if len(content) > MAX_BYTES:
            raise ConfigError(f"a reward's source has at most {MAX_BYTES:,} bytes (got {len(content):,})")
        found = inspect_source(source, function)
        digest = hashlib.sha256(content).hexdigest()
        version = hashlib.sha256(f"{digest}:{found.name}".encode()).hexdigest()[:12]
        path = self._root / name / f"{version}.py"
        write_bytes(path, content)
        row = {
            "name": name,
            "version": version,
            "entrypoint": f"{path}:{found.name}",
            "source_sha256": digest,
            "params_schema": _schema(found),
            "owner_id": self._actor.id,
        }
        with self._database.transaction() as connection:
            if not connection.execute(_of(name).where(tables.reward_fns.c.version == version)).first():
                row["id"] = new_id(self._database.now(connection))
                connection.execute(tables.reward_fns.insert().values(row | {"created_at": NOW}))
        return self.get(name, version)

    def all(self) -> list[RewardFunction]:
        """Every version, by name, the newest of each first."""
        table = tables.reward_fns
        query = sa.select(table).order_by(table.c.name, table.c.created_at.desc(), table.c.id.desc())
        with self._database.reading() as connection:
            return [_function(row) for row in connection.execute(query)]

    def get(self, name: str, version: str | None = None) -> RewardFunction:
        """A version, the newest if none is named. Raises NotFoundError."""
        found = [each for each in self.all() if each.name == name and version in (None, each.version)]
        if not found:
            raise NotFoundError(f"no reward {name!r}{f' of version {version}' if version else ''} was brought")
        return found[0]


@dataclass(frozen=True)
class Inspected:
    """A function as its text tells it."""

    name: str
    about: str
    takes: tuple[str, ...]
    settings: tuple[Setting, ...]


def inspect_source(source: str, function: str | None = None) -> Inspected:
    """Reads a file's text without running it. Raises ConfigError."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigError(f"this is no Python: {where}{error}") from error
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    public = [name for name in functions if not name.startswith("_")]
    wanted = function or ("score" if "score" in functions else public[0] if len(public) == 1 else None)
    if wanted is None or wanted not in functions:
        there = ", ".join(public) or "none"
        what = f"no function {wanted!r}" if wanted else "several functions, and none is called `score`"
        raise ConfigError(f"the file has {what if functions else 'no function'}; it has: {there}")
    return _inspected(functions[wanted])


def _inspected(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Inspected:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    told = [Setting(argument.arg, None if default is None else ast.unparse(default)) for argument, default in pairs]
    takes = tuple(each.name for each in told if each.name in DOCUMENTED)
    if not takes and arguments.kwarg is None:
        raise ConfigError(f"function {node.name!r} takes none of {', '.join(DOCUMENTED)}, so it can tell nothing apart")
    settings = tuple(each for each in told if each.name not in DOCUMENTED)
    return Inspected(node.name, ast.get_docstring(node) or "", takes, settings)


def _schema(found: Inspected) -> dict[str, Any]:
    settings = [{"name": each.name, "default": each.default} for each in found.settings]
    return {"about": found.about, "takes": list(found.takes), "settings": settings}


def _of(name: str) -> sa.Select[Any]:
    return sa.select(tables.reward_fns.c.id).where(tables.reward_fns.c.name == name)


def _function(row: Any) -> RewardFunction:
    schema = row.params_schema
    return RewardFunction(
        id=row.id,
        name=row.name,
        version=row.version,
        entrypoint=row.entrypoint,
        source_sha256=row.source_sha256,
        about=schema["about"],
        takes=tuple(schema["takes"]),
        settings=tuple(Setting(**each) for each in schema["settings"]),
        owner_id=row.owner_id,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
    )
