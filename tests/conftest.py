"""Fixtures that several packages share. Heavy libraries are imported when a fixture is used, not before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Tiny models gain nothing from a second thread, and lose much where another process wants the core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_model(family, **options)`: the folder of a tiny model, built once a session; not to be written into."""
    from mmrl.models.tiny import build_tiny

    built: dict[tuple[Any, ...], Path] = {}

    def build(family: str = "qwen2_5_vl", **options: Any) -> Path:
        key = (family, *sorted(options.items()))
        if key not in built:
            built[key] = build_tiny(family, tmp_path_factory.mktemp("model") / family, **options)
        return built[key]

    return build


@pytest.fixture(scope="session")
def image_store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An image store of the test session's own."""
    from mmrl.data.images import ImageStore

    return ImageStore(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def pictures(image_store: Any) -> tuple[Any, ...]:
    """Three noise images in `image_store`: 56x56, 84x112 and 240x140 pixels (width x height)."""
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    sizes = [(56, 56), (112, 84), (140, 240)]
    return tuple(image_store.add(Image.fromarray(draw.integers(0, 256, (*size, 3), dtype=np.uint8))) for size in sizes)


@pytest.fixture(scope="session")
def tiny_policy(tiny_model: Callable[..., Path], image_store: Any) -> Callable[..., Any]:
    """`tiny_policy(family, freeze=…, trainable=…, dtype=…)`: a policy with weights of its own on the CPU.

    float32 unless asked otherwise; its images lie in `image_store`. Loaded once a session, then copied.
    """
    import copy

    from mmrl.config.run import ImageConfig, ModelConfig
    from mmrl.models.policy import apply_freeze, load_policy

    loaded: dict[tuple[str, str], Any] = {}

    def load(
        family: str = "qwen2_5_vl", *, freeze: tuple[Any, ...] = (), trainable: bool = True, dtype: Any = "float32"
    ) -> Any:
        if (family, dtype) not in loaded:
            config = ModelConfig(path=str(tiny_model(family)), dtype=dtype, device="cpu")
            loaded[family, dtype] = load_policy(config, ImageConfig(), store=image_store)
        original = loaded[family, dtype]
        policy = copy.deepcopy(original, {id(item): item for item in (original.prompts, original.family)})
        if trainable:
            apply_freeze(policy, freeze)
        else:
            policy.requires_grad_(False)
        return policy

    return load


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A PostgreSQL server of the test process's own, with a template that has mmrl's schema."""
    from postgres_server import PostgresServer

    server = PostgresServer.begin()
    try:
        server.create_template()
        yield server
    finally:
        server.end()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with mmrl's schema, to copy."""
    from mmrl.jobs.database import Database

    file = tmp_path_factory.mktemp("sqlite") / "mmrl.db"
    Database.open(f"sqlite:///{file}").close()
    return file


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def job_url(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of an empty job database with mmrl's schema, of each engine in turn; MMRL_HOME and
    MMRL_DATABASE_URL point to it."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    if request.param == "sqlite":
        file = tmp_path / "home" / "mmrl.db"
        file.parent.mkdir(exist_ok=True)
        shutil.copyfile(sqlite_template, file)
        monkeypatch.setenv("MMRL_DATABASE_URL", f"sqlite:///{file}")
        yield f"sqlite:///{file}"
        return
    from postgres_server import TEMPLATE

    server = request.getfixturevalue("postgres_server")
    url = server.create_database(template=TEMPLATE)
    monkeypatch.setenv("MMRL_DATABASE_URL", url)
    yield url
    server.drop_database(url)


@pytest.fixture
def job_database(job_url: str) -> Iterator[Any]:
    """The same, open, with leases of 2 s."""
    from mmrl.jobs.database import Database
    from mmrl.jobs.settings import JobsSettings

    settings = JobsSettings(lease_s=2.0, beat_s=0.5, grace_s=2.0, poll_s=0.05)
    with Database.open(job_url, settings=settings) as database:
        yield database


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests under these folders are marked so, which lets one run take them and the thorough unit tests.

    A browser beside a training run on two cores is now and then late for a wait of a minute: its tests alone get a
    second try, which the summary counts, and it shows how the first one failed. `--force-reruns 0` leaves it out.
    """
    for item in items:
        if {"integration", "console", "browser"} & set(item.path.relative_to(TESTS).parts):
            item.add_marker(pytest.mark.integration)
        if "browser" in item.path.relative_to(TESTS).parts:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """In CI nothing may be skipped for a missing part: a skip fails there."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"


@pytest.fixture(scope="module")
def digits_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home of the module's own, MMRL_HOME meanwhile: the digits registered, a tiny model for them in `base`."""
    from mmrl.data.digits import build_digits, digit_texts
    from mmrl.models.tiny import build_tiny_qwen2_5_vl

    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        build_digits()
        build_tiny_qwen2_5_vl(folder / "base", sentences=digit_texts(), seed=0)
        yield folder


@pytest.fixture
def tower_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each call of a vision tower got."""
    from mmrl.models.families.qwen_vl import QwenVlFamily

    calls: list[int] = []
    run_tower = QwenVlFamily._run_tower

    def count(self: Any, hf: Any, images: Any) -> Any:
        calls.append(len(images))
        return run_tower(self, hf, images)

    monkeypatch.setattr(QwenVlFamily, "_run_tower", count)
    return calls
