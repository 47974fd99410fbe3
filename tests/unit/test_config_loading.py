"""Reading config files: what is refused, where each value came from, and how paths are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from config_files import write_config
from timed_process import run_timed

from mmrl.config import RunConfig, build_config, dump_yaml, load_config
from mmrl.config.comparing import diff_configs
from mmrl.config.nodes import Origin
from mmrl.errors import ConfigError, NotFoundError

ROOT = Path(__file__).parents[2]


def test_each_value_has_the_origin_that_set_it(tmp_path: Path) -> None:
    """L03: the file beats defaults, an override the file."""
    path = write_config(tmp_path, "train:\n  steps: 100\noptim: {lr: 1e-5}\n")
    loaded = load_config(path, ["optim.lr=1e-6", "algorithm.kl.coef=0.1"])
    assert loaded.config.train.steps == 100
    assert loaded.origin_of("train.steps") == Origin("file", f"{path}:6")
    assert loaded.origin_of("optim.lr") == Origin("override", "optim.lr=1e-6")
    assert loaded.origin_of("optim.eps") == Origin("default")
    assert loaded.origin_of("algorithm.kl.coef") == Origin("override", "algorithm.kl.coef=0.1")
    assert loaded.origin_of("algorithm.kl.estimator") == Origin("default")
    assert loaded.origin_of("reward.0.type") == Origin("file", f"{path}:4")
    assert loaded.origin_of("reward.0.weight") == Origin("default")


def test_leaves_tell_every_value_once(tmp_path: Path) -> None:
    loaded = load_config(write_config(tmp_path))
    keys = [leaf.key for leaf in loaded.leaves]
    assert len(keys) == len(set(keys))
    assert keys[0] == "name"
    assert {"optim.betas", "rollout.stop", "algorithm.type", "stages"} <= set(keys)
    assert {leaf.key: leaf.value for leaf in loaded.leaves}["optim.betas"] == [0.9, 0.999]


def test_a_missing_file_is_not_found_and_names_the_nearest(tmp_path: Path) -> None:
    write_config(tmp_path)
    with pytest.raises(NotFoundError, match=r"runs\.yaml' does not exist .*did you mean '.*run\.yaml'"):
        load_config(tmp_path / "runs.yaml")
    with pytest.raises(NotFoundError, match=r"does not exist \(looked in .*/nowhere\)"):
        load_config(tmp_path / "nowhere" / "run.yaml")


def test_a_folder_stands_for_the_config_in_it(tmp_path: Path) -> None:
    write_config(tmp_path, name="config.yaml")
    assert load_config(tmp_path).config.name == "digits"
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"holds no config\.yaml"):
        load_config(tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty; a config needs at least name, model.path and data.train"),
        ("# nothing but a comment\n", "the file is empty"),
        ("- a\n- b\n", r"run\.yaml:1: a config is a map of keys, such as `name: my-run`; got a list"),
        ("hello\n", "got the value 'hello'"),
        ("name: a\nmodel: {path: b\n", r"run\.yaml:3: not valid YAML at column 1"),
        ("name: a\n\tmodel: b\n", r"run\.yaml:2: not valid YAML at column 1: .*indent with spaces, not tabs"),
        ("name: a\nseed: 1\nname: b\n", r"run\.yaml:3: key 'name' is set twice \(first at .*run\.yaml:1\)"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("name: !!python/object:os.system a\n", r"run\.yaml:1: 'a' cannot be read with the tag"),
        ("name: !secret a\n", "cannot be read with the tag !secret"),
        ("? [a, b]\n: c\n", "a key must be text"),
        ("name: &x [*x]\n", "aliases"),
        ("name: \x07\n", "not valid YAML"),
        ("<<: 3\n", "`<<` takes a map"),
    ],
)
def test_a_file_that_is_no_config_gets_one_clear_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load_config(write_config(tmp_path, base=text))
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load_config(path)


def test_a_byte_order_mark_and_crlf_do_no_harm(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_config(path).config.name == "digits"


def test_aliases_that_multiply_beyond_reason_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="more than 20,000 values, counted with all that aliases"):
        load_config(write_config(tmp_path, base="\n".join(lines)))


def test_merge_keys_are_laid_under_the_keys_written_out(tmp_path: Path) -> None:
    text = "optim: &o {lr: 1e-3, eps: 1e-7}\n"
    with pytest.raises(ConfigError, match=r"unknown key 'sft\.lr'"):
        load_config(write_config(tmp_path, text + "sft: {<<: *o}\n"))
    merged = "data: {train: d, image: {<<: {min_pixels: 1, max_pixels: 9}, max_pixels: 5}}\n"
    config = load_config(write_config(tmp_path, merged, base="name: a\nkind: sft\nmodel: {path: m}\n")).config
    assert (config.data.image.min_pixels, config.data.image.max_pixels) == (1, 5)


def test_a_config_without_algorithm_type_is_grpo(tmp_path: Path) -> None:
    loaded = load_config(write_config(tmp_path, "algorithm: {group_size: 4}\n"))
    assert (loaded.config.algorithm.type, loaded.config.algorithm.group_size) == ("grpo", 4)
    assert loaded.origin_of("algorithm.type") == Origin("default")


def test_tilde_and_variables_in_paths_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("MMRL_HOME", "/state")
    monkeypatch.setenv("SETS", "/sets")
    path = write_config(tmp_path)
    config = load_config(path, ["model.path=~/m", "data.train=${MMRL_HOME}/d", "data.eval=${SETS}/e"]).config
    assert (config.model.path, config.data.train, config.data.eval) == ("/home/someone/m", "/state/d", "/sets/e")
    monkeypatch.delenv("MMRL_HOME")
    assert load_config(path, ["data.train=${MMRL_HOME}/d"]).config.data.train == "/home/someone/.mmrl/d"


def test_a_variable_that_is_not_set_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(ConfigError, match=r"environment variable NOWHERE in '\$\{NOWHERE\}/d' is not set"):
        load_config(write_config(tmp_path), ["data.train=${NOWHERE}/d"])


def test_relative_paths_are_found_from_the_working_directory_then_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "configs", tmp_path / "here"
    there.mkdir(), here.mkdir()
    (there / "mine.py").touch(), (there / "both.py").touch(), (here / "both.py").touch()
    (here / "digits").mkdir(), (here / "sets").mkdir()
    monkeypatch.chdir(here)
    functions = "[{type: function, path: %s, name: a}, {type: function, path: %s, name: b}]"
    path = write_config(there)
    config = load_config(
        path, ["reward=" + functions % ("mine.py", "both.py"), "data.eval=./sets@test", "model.path=not/there"]
    ).config
    assert config.reward[0].path == str(there / "mine.py")  # type: ignore[union-attr]
    assert config.reward[1].path == str(here / "both.py")  # type: ignore[union-attr]
    assert config.data.eval == f"{here / 'sets'}@test"
    assert config.model.path == "not/there"
    assert config.data.train == "digits"  # a name, although a folder is called so


def test_a_dumped_config_loads_to_an_equal_one(tmp_path: Path) -> None:
    function = "{type: function, path: mine.py, arguments: {a: [1, {b: null}], c: 'no'}}"
    stage = "{after: reward, path: s.py, name: F, arguments: {x: 1.5}}"
    config = load_config(write_config(tmp_path), [f"reward=[{function}]", f"stages=[{stage}]", "optim.lr=3e-7"]).config
    again = tmp_path / "again.yaml"
    again.write_text(dump_yaml(config))
    assert RunConfig.load(again) == config
    assert dump_yaml(RunConfig.load(again)) == dump_yaml(config)


def test_plain_data_is_loaded_like_a_file() -> None:
    data = {"name": 12, "model": {"path": "m"}, "data": {"train": "d"}, "kind": "sft"}
    with pytest.raises(ConfigError, match="form: name: got 12; must be text"):
        build_config(data, source="form")
    loaded = build_config(data | {"name": "a"}, ["seed=3"], source="form")
    assert loaded.config.seed == 3
    assert str(loaded.origin_of("name")) == "form"


def test_a_loaded_config_cannot_be_changed(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path)).config
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 4


def test_a_diff_tells_values_and_keys_that_only_one_side_has(tmp_path: Path) -> None:
    first = load_config(write_config(tmp_path), ["seed=1"])
    second = load_config(write_config(tmp_path), ["reward=[{type: exact}, {type: length, max_tokens: 9}]"])
    differences = {item.key: item for item in diff_configs(first, second)}
    assert differences["seed"].first.value == 1  # type: ignore[union-attr]
    assert differences["seed"].second.value == 0  # type: ignore[union-attr]
    assert differences["reward.1.max_tokens"].first is None
    assert set(differences) == {"seed"} | {
        f"reward.1.{key}" for key in ("type", "weight", "name", "normalise", "shaping", "free_tokens", "max_tokens")
    }


def test_importing_the_config_is_quick_and_brings_no_torch() -> None:
    code = "import mmrl.config, sys; print([m for m in ('torch', 'transformers', 'ruamel.yaml') if m in sys.modules])"
    done, seconds = run_timed([sys.executable, "-c", code])
    assert done.stdout.strip() == "[]", done.stderr
    assert seconds < 0.5


@pytest.mark.parametrize(
    "path",
    sorted(set((ROOT / "configs").glob("*.yaml")) - set((ROOT / "configs").glob("pipeline-*.yaml"))),
    ids=lambda path: path.name,
)
def test_every_config_of_the_repository_loads(path: Path) -> None:
    assert load_config(path).config.name


def test_the_example_in_the_manual_loads(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    config = load_config(write_config(tmp_path, base=example)).config
    assert [reward.part_name for reward in config.reward] == ["exact", "length"]
    assert config.optim.lr == 1e-5
