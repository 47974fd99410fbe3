"""A pipeline: steps that are runs, the later ones taking what the earlier ones leave behind by name.

```yaml
name: digits
steps:
  sft:
    config: sft.yaml                       # a file beside this one, or the config itself
    set: {train.steps: 100}                # over it, as KEY=VALUE on the command line
  grpo:
    config: grpo.yaml
    set: {model.path: "${sft.model@best}"} # also ${sft.model}, ${sft.model@40}, ${sft.run_dir}, ${sft.dataset}
```

A step that names another waits for it; `after` adds others to wait for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from mmrl.config.base import ConfigModel
from mmrl.config.dump import value_text
from mmrl.config.loading import LoadedConfig, build_config
from mmrl.config.nodes import MapNode, Origin, plain
from mmrl.config.yaml_text import read_yaml
from mmrl.errors import ConfigError, NotFoundError

_STEP_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_RESULT = re.compile(r"\$\{([A-Za-z][A-Za-z0-9_-]*)\.(model(?:@(?:best|last|\d+))?|run_dir|dataset)\}")
_LIKE_RESULT = re.compile(r"\$\{([A-Za-z][A-Za-z0-9_-]*)\.([^}]*)\}")


class StepConfig(ConfigModel):
    """One step: a config, and what is set over it."""

    config: str | dict[str, Any]
    """A YAML file, from the folder of the pipeline's, or the config itself."""
    set: dict[str, Any] = {}
    """Settings over it, by dotted key."""
    after: tuple[str, ...] = ()
    """Steps that must have succeeded before, besides those whose results it takes."""
    cpus: int | None = Field(None, ge=0)
    """CPU slots; by default what the placement asks for."""
    gpus: int | None = Field(None, ge=0)
    """GPUs; by default what the placement asks for."""


class PipelineConfig(ConfigModel):
    """Steps by name, in any order."""

    name: str = Field(..., min_length=1)
    """Name of the pipeline; its runs are named NAME-STEP."""
    steps: dict[str, StepConfig] = Field(..., min_length=1)
    """The steps."""

    @field_validator("steps")
    @classmethod
    def _named(cls, steps: dict[str, StepConfig]) -> dict[str, StepConfig]:
        for name in steps:
            if not _STEP_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is no name for a step; it begins with a letter and has letters, digits, '-' and '_'"
                )
        return steps


@dataclass(frozen=True)
class Pipeline:
    """A pipeline that was read.

    folder: where relative files of its steps lie. needs: of each step those that it waits for. order: each step after
    those that it needs.
    """

    config: PipelineConfig
    source: str
    folder: Path
    needs: Mapping[str, tuple[str, ...]]
    order: tuple[str, ...]

    def load(self, step: str, result: Callable[[str, str], str]) -> LoadedConfig:
        """The config of a step. result: what (step, word) of an earlier one stands for; word is `model`, `model@best`,
        `run_dir` …; `dataset` is looked up in that step's own config."""
        settings = self.config.steps[step]
        overrides = [f"{key}={_text_of(value)}" for key, value in self._filled(settings.set, result).items()]
        overrides.insert(0, f"name={value_text(f'{self.config.name}-{step}')}")
        source = f"{self.source}: steps.{step}"
        try:
            if isinstance(settings.config, str):
                data = self._filled(self._file_of(settings.config), result)
                return build_config(data, overrides, source=source, folder=(self.folder / settings.config).parent)
            return build_config(self._filled(settings.config, result), overrides, source=source, folder=self.folder)
        except NotFoundError as error:
            raise NotFoundError(f"{source}: {error}") from error
        except ConfigError as error:
            if source in str(error):
                raise
            raise ConfigError(f"{source}: {error}") from error

    def dataset_of(self, step: str) -> str:
        """The data set that a step of kind `mark` registers."""
        settings = self.config.steps[step]
        data = self._file_of(settings.config) if isinstance(settings.config, str) else settings.config
        name = settings.set.get("mark.dataset", (data.get("mark") or {}).get("dataset"))
        if not isinstance(name, str):
            raise ConfigError(f"{self.source}: ${{{step}.dataset}}: step {step!r} makes no data set (no mark.dataset)")
        return name

    def _filled(self, value: Any, result: Callable[[str, str], str]) -> Any:
        """With the results of earlier steps in place of their names."""
        if isinstance(value, Mapping):
            return {key: self._filled(item, result) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._filled(item, result) for item in value]
        if not isinstance(value, str):
            return value
        return _RESULT.sub(lambda match: self._result(match[1], match[2], result), value)

    def _result(self, step: str, word: str, result: Callable[[str, str], str]) -> str:
        return self.dataset_of(step) if word == "dataset" else result(step, word)

    def _file_of(self, name: str) -> dict[str, Any]:
        return _read_map(self.folder / Path(name).expanduser())


def _text_of(value: Any) -> str:
    """As it stands on a command line."""
    is_plain = not isinstance(value, dict | list) or all(not isinstance(item, dict | list) for item in value)
    return value_text(value) if is_plain and not isinstance(value, dict) else json.dumps(value, ensure_ascii=False)


def load_pipeline(path: Path) -> Pipeline:
    """Raises NotFoundError, and ConfigError for a step that does not exist, a circle, or whatever else is wrong."""
    file = path.expanduser()
    data = _read_map(file)
    try:
        config = PipelineConfig.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"{file}: {faults}") from error
    folder = file.absolute().parent
    needs: dict[str, tuple[str, ...]] = {}
    for name, step in config.steps.items():
        own = [step.config if isinstance(step.config, dict) else _read_map(folder / Path(step.config).expanduser())]
        named = [*step.after, *_named_in([*own, step.set], f"{file}: steps.{name}")]
        needs[name] = tuple(dict.fromkeys(_existing(each, config, name, file) for each in named))
    return Pipeline(config, str(file), folder, needs, tuple(_ordered(needs, file)))


def _named_in(value: Any, where: str) -> Iterator[str]:
    """The steps whose results a config takes."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _named_in(item, where)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named_in(item, where)
    elif isinstance(value, str):
        for match in _LIKE_RESULT.finditer(value):
            if not _RESULT.fullmatch(match[0]):
                raise ConfigError(
                    f"{where}: {match[0]} is no result of a step; allowed are model, model@best, model@STEP, run_dir "
                    "and dataset"
                )
            yield match[1]


def _existing(name: str, config: PipelineConfig, step: str, file: Path) -> str:
    if name in config.steps and name != step:
        return name
    near = get_close_matches(name, [other for other in config.steps if other != step], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"steps: {', '.join(config.steps)}"
    itself = " but itself" if name == step else ""
    raise ConfigError(f"{file}: steps.{step} takes from step {name!r}, and there is none{itself}; {hint}")


def _ordered(needs: Mapping[str, tuple[str, ...]], file: Path) -> Iterator[str]:
    """Each step after those that it needs, otherwise as written."""
    done: list[str] = []
    while len(done) < len(needs):
        ready = [name for name in needs if name not in done and all(each in done for each in needs[name])]
        if not ready:
            left = [name for name in needs if name not in done]
            raise ConfigError(
                f"{file}: steps {', '.join(left)} wait for each other in a circle; take one reference out"
            )
        done.append(ready[0])
        yield ready[0]


def _read_map(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    root = read_yaml(text, lambda line: Origin("file", f"{file}:{line}"))
    if not isinstance(root, MapNode):
        raise ConfigError(f"{file}: must be a map, such as `name: …`, `steps: …`")
    data: dict[str, Any] = plain(root)
    return data
