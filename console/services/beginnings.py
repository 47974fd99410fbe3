"""What a new run can begin as: a template, a past run with something changed, a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from console.services.drafts import Draft, Drafts
from console.services.mark_runs import marks_config
from mmrl.config.base import ConfigModel, home
from mmrl.config.dump import yaml_text
from mmrl.config.loading import build_config
from mmrl.errors import MmrlError, NotFoundError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.runs.checkpoint_refs import checkpoint_at

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TINY = "quickstart"
GOALS: Mapping[str, tuple[str, str]] = {
    "rl": (
        "Reinforcement learning",
        "The model answers, rewards score its answers, and it learns from the better ones.",
    ),
    "sft": ("Supervised fine-tuning", "The model learns to give the reference answers of the data."),
    "preference": ("Preferences", "The model learns from pairs of a better and a worse answer."),
    "reward_model": ("Reward model", "A model learns to score answers, from pairs of a better and a worse one."),
}
"""Kinds of runs that train, with their names and what they do."""


@dataclass(frozen=True)
class Template:
    """name: in the address. about: what its file says of itself. needs: its hardware in words."""

    name: str
    title: str
    about: str
    kind: str
    needs: str
    text: str


def templates() -> list[Template]:
    """The configs that come with mmrl, the tiny model's first and then by what they need, and an empty one for each
    goal."""
    texts = [(file.stem, file.read_text(encoding="utf-8")) for file in sorted(CONFIGS.glob("*.yaml"))]
    found = [template for stem, text in texts if (template := _of_text(stem, text)) is not None]
    found.sort(key=lambda each: (each.name != TINY, _num_gpus(each.needs)))
    return [*found, *(_empty(kind) for kind in GOALS)]


def template(name: str) -> Template:
    """Raises NotFoundError that names those there are."""
    known = {each.name: each for each in templates()}
    if name not in known:
        raise NotFoundError(f"there is no template {name!r}; there are {', '.join(known)}")
    return known[name]


def tiny_model_is_there() -> bool:
    """Whether `mmrl quickstart --prepare` has been here: a tiny model and small data to try everything with."""
    return (home() / "quickstart" / "model" / "config.json").is_file()


class Beginnings:
    """Makes drafts. jobs: those that the viewer may read."""

    def __init__(self, drafts: Drafts, jobs: Jobs) -> None:
        self._drafts, self._jobs = drafts, jobs

    def from_template(self, name: str) -> Draft:
        chosen = template(name)
        return self._drafts.create(chosen.text, origin=f"the template {chosen.title}")

    def from_job(self, ref: str) -> Draft:
        """A copy of a past run's settings, defaults left out, to be changed; it counts as that run's child."""
        job = self._jobs.get(ref)
        return self._drafts.create(
            yaml_text(_settings(job)), origin=f"the run {job.name}", parent_job_id=job.id, pool=job.pool
        )

    def from_checkpoint(self, ref: str) -> Draft:
        """A run that begins with the weights of JOB@STEP (a number, best or last) and the settings of that run."""
        name, at, step = ref.rpartition("@")
        job = self._jobs.get(name if at else ref)
        found = checkpoint_at(job.run_dir, step if at else "last")
        settings = _settings(job)
        settings["model"] = {**settings.get("model", {}), "path": str(found.model)}
        settings["name"] = f"{job.name}-from-{found.step}"
        return self._drafts.create(
            yaml_text(settings),
            origin=f"checkpoint {found.step} of {job.name}",
            parent_job_id=job.id,
            pool=job.pool,
            checkpoint=str(found.checkpoint),
        )

    def from_marks(self, name: str, base: str, goal: str) -> Draft:
        """A run of a goal on a data set of people's marks, whole, from the policy that made the answers."""
        text = yaml_text(marks_config(name, base, goal))
        return self._drafts.create(text, origin=f"the marks {name} on {base}")

    def with_data(self, names: list[str]) -> Draft:
        """An empty run on a data set, or on a mix of several with equal weights."""
        text = _empty("rl").text
        draft = self._drafts.create(text, origin=f"the data {', '.join(names)}")
        train: Any = names[0] if len(names) == 1 else [{"name": name, "weight": 1.0} for name in names]
        return self._drafts.set_value(draft.id, "data.train", train)


def only_changed(model: ConfigModel) -> dict[str, Any]:
    """What of a config differs from the defaults, and the `type` of its parts, as plain data."""
    found: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if name == "type":
            found[name] = value
        elif name in model.changed:
            found[name] = _changed(value)
    return found


def _changed(value: Any) -> Any:
    if isinstance(value, ConfigModel):
        return only_changed(value)
    if isinstance(value, dict):
        return {key: _changed(each) for key, each in value.items()}
    return [_changed(each) for each in value] if isinstance(value, tuple | list) else value


def _settings(job: Job) -> dict[str, Any]:
    """A job's config without its defaults; whole where this version of mmrl reads it no more."""
    config = {"kind": job.kind, **job.config}
    try:
        model = build_config(config, source=job.name, is_stored=True).config
    except MmrlError:
        return dict(job.config)
    return {"kind": job.kind, **only_changed(model)}


@lru_cache(maxsize=64)
def _of_text(stem: str, text: str) -> Template | None:
    """None for a config of another kind, or of a pipeline."""
    data = Draft("", "", text, "", 0.0, "").data or {}
    kind = str(data.get("kind") or "rl")
    if kind not in GOALS or "steps" in data:
        return None
    title = _title(stem, str((data.get("model") or {}).get("path") or ""))
    return Template(stem, title, _first_words(text), kind, _needs(data), text)


def _title(stem: str, path: str) -> str:
    return "The tiny model on digits" if stem == TINY else path.rpartition("/")[2] or stem


def _first_words(text: str) -> str:
    lines = [line.removeprefix("#").strip() for line in text.split("\n") if line.startswith("#")]
    return lines[0] if lines else ""


def _needs(data: Mapping[str, Any]) -> str:
    pools = (data.get("placement") or {}).get("pools") or {}
    gpus = sum(pool.get("workers", 1) * pool.get("gpus_per_worker", 0) for pool in pools.values())
    if gpus:
        return f"{gpus:g} GPUs" if gpus != 1 else "1 GPU"
    return "1 GPU" if (data.get("rollout") or {}).get("engine") == "vllm" else "a CPU will do"


def _num_gpus(needs: str) -> float:
    number = needs.partition(" ")[0]
    return float(number) if number.replace(".", "", 1).isdecimal() else 0.0


@lru_cache(maxsize=16)
def _empty(kind: str) -> Template:
    title, about = GOALS[kind]
    data: dict[str, Any] = {"name": f"my-{kind.replace('_', '-')}-run", "kind": kind, "model": {}, "data": {}}
    if kind == "rl":
        data |= {"algorithm": {"type": "grpo"}, "reward": [{"type": "exact", "weight": 1.0}]}
    return Template(f"empty-{kind}", f"Empty: {title.lower()}", about, kind, "", yaml_text(data))
