"""From a YAML file and `key=value` overrides to the config of a run, and the origin of each of its values.

The way: file -> tree of nodes (`yaml_text`) -> overrides laid over it (`overrides`) -> plain data -> pydantic;
what pydantic refuses becomes one ConfigError (`faults`), what it accepts is told by leaf with its origin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from mmrl.config.dump import plain_config
from mmrl.config.faults import config_error, fault_line, faults_of
from mmrl.config.kinds import config_class, kinds_of
from mmrl.config.nodes import DEFAULT, ListNode, MapNode, Node, Origin, Scalar, dotted, find, from_plain, plain
from mmrl.config.nodes import Path as KeyPath
from mmrl.config.overrides import apply_override, join_split_overrides, read_override
from mmrl.config.schema import path_of
from mmrl.config.unread import drop_unread
from mmrl.config.yaml_text import read_yaml
from mmrl.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from mmrl.config.base import ConfigModel
    from mmrl.config.kinds import AnyConfig
    from mmrl.config.run import RunConfig

Config = TypeVar("Config", bound="ConfigModel")


@dataclass(frozen=True)
class Leaf:
    """One value of a config: a scalar, or a list of scalars as a whole. Secrets are left out of `value`."""

    key: str
    value: Any
    origin: Origin


@dataclass(frozen=True)
class LoadedConfig:
    """A config, where it was read from, and each of its values with its origin, in the order of the models."""

    config: AnyConfig
    source: str
    leaves: tuple[Leaf, ...]

    @property
    def run_config(self) -> RunConfig:
        """The config of a run that trains a model. Raises ConfigError for another kind."""
        from mmrl.config.run import RunConfig

        return self.of(RunConfig)

    def of(self, model: type[Config]) -> Config:
        """The config as one of class `model`. Raises ConfigError for a kind of another class."""
        if not isinstance(self.config, model):
            wanted = ", ".join(kinds_of(model))
            raise ConfigError(
                f"{self.source}: kind {self.config.kind} does not do here; give a config of kind {wanted}"
            )
        return self.config

    def origin_of(self, key: str) -> Origin:
        """The origin of the value at a dotted key. Raises KeyError for one that does not exist."""
        return {leaf.key: leaf.origin for leaf in self.leaves}[key]


def load_over(
    path: str | Path | None, base: Mapping[str, Any], overrides: Sequence[str] = (), *, source: str
) -> LoadedConfig:
    """The config `base`, a run's own, with the top-level keys of a YAML file in place of its own.

    base is taken as stored, see `load_config`. source: stands for the base in messages. Raises as `load_config` does.
    """
    root = from_plain(base, Origin("file", source))
    assert isinstance(root, MapNode)
    _leave_out_unread(root, source, Path.cwd())
    if path is None:
        return _load(root, overrides, source=source, folder=Path.cwd())
    file, own = _read_map(path)
    root.items |= own.items
    return _load(root, overrides, source=str(file), folder=file.parent)


def load_config(path: str | Path, overrides: Sequence[str] = (), *, is_stored: bool = False) -> LoadedConfig:
    """The config in a YAML file, or in the `config.yaml` of a folder, with overrides such as `optim.lr=1e-6`.

    is_stored: mmrl wrote it, as it did that of a folder; then what an earlier version stored and nothing reads today is
    left out with a note in the log, where it would be refused of a person. Overrides are a person's.

    Raises NotFoundError if there is no such file, and ConfigError that lists all that is wrong with it.
    """
    file, root = _read_map(path)
    if is_stored or Path(path).expanduser().is_dir():
        _leave_out_unread(root, str(file), file.parent)
    return _load(root, overrides, source=str(file), folder=file.parent)


def build_config(
    data: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    source: str = "config",
    folder: Path | None = None,
    is_stored: bool = False,
) -> LoadedConfig:
    """The same from plain data, such as a form's. `source` stands for the file in messages, and relative paths are
    looked for in `folder` too."""
    root = from_plain(data, Origin("file", source))
    assert isinstance(root, MapNode)
    if is_stored:
        _leave_out_unread(root, source, folder or Path.cwd())
    return _load(root, overrides, source=source, folder=folder or Path.cwd())


def _read_map(path: str | Path) -> tuple[Path, MapNode]:
    file = _config_file(Path(path).expanduser())
    root = read_yaml(_read_text(file), lambda line: Origin("file", f"{file}:{line}"))
    if root is None:
        raise ConfigError(f"{file}: the file is empty; a config needs at least name, model.path and data.train")
    if not isinstance(root, MapNode):
        raise ConfigError(f"{root.origin}: a config is a map of keys, such as `name: my-run`; got {_kind(root)}")
    return file, root


def _load(root: MapNode, overrides: Sequence[str], *, source: str, folder: Path) -> LoadedConfig:
    _apply_overrides(root, overrides, source)
    config = _validate(root, source, folder)
    _refuse_booleans_as_numbers(config, root, source)
    return LoadedConfig(config, source, tuple(_leaves(plain_config(config), root, ())))


def _leave_out_unread(root: MapNode, source: str, folder: Path) -> None:
    """Whatever else is wrong is told when the config is built."""
    is_changed = True
    while is_changed:
        try:
            config_class(root).model_validate(plain(root), context={"folder": folder})
            return
        except ValidationError as error:
            is_changed = drop_unread(root, error, source) or _take_as_text(root, error)


def _apply_overrides(root: MapNode, overrides: Sequence[str], source: str) -> None:
    faults = []
    for text in join_split_overrides(overrides):
        try:
            apply_override(root, read_override(text))
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise config_error(source, faults)


def _validate(root: MapNode, source: str, folder: Path) -> AnyConfig:
    try:
        config: Any = config_class(root).model_validate(plain(root), context={"folder": folder})
        return config
    except ValidationError as error:
        if _take_as_text(root, error):
            return _validate(root, source, folder)
        raise config_error(source, faults_of(error, root, source)) from error


def _take_as_text(root: MapNode, error: ValidationError) -> bool:
    """Where text is wanted and YAML read a number or a boolean, put the text as it was written; True if any was."""
    any_changed = False
    for details in error.errors(include_url=False, include_context=False):
        node = find(root, path_of(details["loc"], root)) if details["type"] == "string_type" else None
        if isinstance(node, Scalar) and node.text and isinstance(node.value, (bool, int, float)):
            node.value = node.text
            any_changed = True
    return any_changed


def _refuse_booleans_as_numbers(config: AnyConfig, root: MapNode, source: str) -> None:
    """pydantic reads `true` as 1; in a config that is a slip."""
    faults = [
        fault_line(root, path, f"got {str(node.value).lower()}; must be a number", source)
        for path, value in _scalars(config.model_dump(), ())
        if isinstance(node := find(root, path), Scalar) and isinstance(node.value, bool) and not isinstance(value, bool)
    ]
    if faults:
        raise config_error(source, faults)


def _scalars(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    items: Iterator[tuple[str | int, Any]] | None = None
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    if items is None:
        yield path, value
        return
    for key, item in items:
        yield from _scalars(item, (*path, key))


def _leaves(value: Any, root: Node, path: KeyPath) -> Iterator[Leaf]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, root, (*path, key))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, root, (*path, index))
    else:
        node = find(root, path)
        yield Leaf(dotted(path), value, node.origin if node is not None else DEFAULT)


def _kind(node: Node) -> str:
    return "a list" if isinstance(node, ListNode) else f"the value {plain(node)!r}"


def _config_file(path: Path) -> Path:
    file = path / "config.yaml" if path.is_dir() else path
    if file.exists():
        return file
    if file != path:
        raise NotFoundError(f"the folder {path} holds no config.yaml; name a config file or a run directory")
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, names, n=1)
    hint = f"did you mean {str(path.parent / near[0])!r}?" if near else "give the path of a YAML file"
    raise NotFoundError(f"config file {str(path)!r} does not exist (looked in {path.absolute().parent}); {hint}")


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start}); save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; check its permissions") from error
