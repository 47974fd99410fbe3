"""Pipelines as files: references, order, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmrl.config.pipeline import Pipeline, load_pipeline
from mmrl.errors import ConfigError, NotFoundError

ROOT = Path(__file__).parents[2]
NOOP = "{kind: noop, noop: {steps: 1}}"


def pipeline(tmp_path: Path, steps: str) -> Pipeline:
    path = tmp_path / "p.yaml"
    path.write_text(f"name: p\nsteps:\n{steps}")
    return load_pipeline(path)


def test_a_step_comes_after_those_whose_results_it_takes(tmp_path: Path) -> None:
    found = pipeline(
        tmp_path,
        f"""\
  last: {{config: {NOOP}, after: [middle]}}
  middle:
    config: {NOOP}
    set: {{noop.failure: "${{first.model@best}} and ${{first.run_dir}}"}}
  first: {{config: {NOOP}}}
""",
    )
    assert found.order == ("first", "middle", "last")
    assert found.needs == {"first": (), "middle": ("first",), "last": ("middle",)}
    loaded = found.load("middle", lambda step, word: f"<{step} {word}>")
    assert loaded.config.name == "p-middle"
    assert loaded.config.noop.failure == "<first model@best> and <first run_dir>"  # type: ignore[union-attr]


def test_a_step_may_be_a_file_beside_the_pipeline_with_settings_over_it(tmp_path: Path) -> None:
    (tmp_path / "noop.yaml").write_text("name: other\nkind: noop\nnoop: {steps: 3, step_s: 0.5}\n")
    found = pipeline(tmp_path, "  a: {config: noop.yaml, set: {noop.steps: 7}}\n")
    config = found.load("a", lambda step, word: "").config
    assert (config.name, config.noop.steps, config.noop.step_s) == ("p-a", 7, 0.5)  # type: ignore[union-attr]


def test_lists_of_maps_and_awkward_text_can_be_set(tmp_path: Path) -> None:
    found = pipeline(
        tmp_path,
        """\
  a:
    config: {kind: rl, model: {path: m}, data: {train: d}, reward: [{type: exact}]}
    set:
      reward: [{type: format, pattern: '\\\\boxed\\{\\d\\}', weight: 0.5}, {type: exact}]
      train.steps: 3
""",
    )
    config = found.load("a", lambda step, word: "").run_config
    assert [reward.type for reward in config.reward] == ["format", "exact"]
    assert config.reward[0].pattern == "\\\\boxed\\{\\d\\}"  # type: ignore[union-attr]


def test_the_data_set_of_a_marking_step_is_known_beforehand(tmp_path: Path) -> None:
    found = pipeline(
        tmp_path,
        """\
  marks:
    config:
      kind: mark
      model: {path: m}
      data: {eval: d}
      reward: [{type: exact}]
      mark: {dataset: pairs}
    set: {mark.dataset: other-pairs}
  dpo:
    config: {kind: preference, model: {path: m}, data: {train: "${marks.dataset}@train"}}
""",
    )
    assert found.needs["dpo"] == ("marks",)
    assert found.load("dpo", lambda step, word: "").run_config.data.train == "other-pairs@train"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (f"  a: {{config: {NOOP}, after: [bb]}}\n  b: {{config: {NOOP}}}\n", ["steps.a", "'bb'", "did you mean 'b'"]),
        (f"  a: {{config: {NOOP}, after: [a]}}\n", ["none but itself"]),
        (f"  a: {{config: {NOOP}, after: [b]}}\n  b: {{config: {NOOP}, after: [a]}}\n", ["circle", "a, b"]),
        (
            f'  a: {{config: {NOOP}}}\n  b: {{config: {NOOP}, set: {{x: "${{a.weights}}"}}}}\n',
            ["${a.weights}", "model@"],
        ),
        (f"  1a: {{config: {NOOP}}}\n", ["'1a'", "begins with a letter"]),
        ("  a: {configs: x}\n", ["config"]),
        (
            f'  a: {{config: {NOOP}}}\n  b: {{config: {NOOP}, set: {{noop.failure: "${{a.dataset}}"}}}}\n',
            ["no data set"],
        ),
        (f"  a: {{config: {NOOP}, set: {{noop.stepz: 1}}}}\n", ["noop.steps"]),
    ],
)
def test_what_is_wrong_is_said_with_the_step(tmp_path: Path, steps: str, words: list[str]) -> None:
    def load_all() -> None:
        found = pipeline(tmp_path, steps)
        for step in found.order:
            found.load(step, lambda step, word: "x")

    with pytest.raises(ConfigError) as caught:
        load_all()
    for word in words:
        assert word in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"gone\.yaml"):
        pipeline(tmp_path, "  a: {config: gone.yaml}\n")
    with pytest.raises(NotFoundError, match="nowhere"):
        load_pipeline(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("pipeline-*.yaml")), ids=lambda path: path.stem)
def test_every_pipeline_of_the_repository_loads(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    found = load_pipeline(path)
    for step in found.order:
        assert found.load(step, lambda step, word: f"job:{step}/{word}").config.name.endswith(f"-{step}")


def test_a_wrong_setting_over_a_step_is_told_with_the_step(tmp_path: Path) -> None:
    found = pipeline(tmp_path, f"  a: {{config: {NOOP}}}\n  b: {{config: {NOOP}, set: {{noop.stepz: 7}}}}\n")
    with pytest.raises(ConfigError, match=r"p\.yaml: steps\.b: override noop\.stepz=7: unknown key"):
        found.load("b", lambda step, word: "")
