"""Worker processes on a Ray of the run's own: two pools, what their processes are given, and what is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from cluster_processes import RayProcesses
from cluster_workers import Closing, Mailbox, Sender, Worker

from mmrl.cluster import Executor, WorkerContext, build_executor, ray_pool, ray_start
from mmrl.cluster.ray_host import Place
from mmrl.cluster.watchdog import is_running
from mmrl.config.placement import PlacementConfig, PoolConfig
from mmrl.errors import ConfigError, RunFailedError

pytestmark = pytest.mark.ray

PLACEMENT = PlacementConfig(
    executor="ray",
    pools={"main": PoolConfig(workers=2), "samplers": PoolConfig(workers=1, cpus_per_worker=0.5, threads=2)},
    object_store_mb=300,
    deadline_s=60,
)


@dataclass(frozen=True)
class Running:
    """said: what the executor told of its start."""

    executor: Executor
    log_dir: Path
    said: list[str]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, said = tmp_path_factory.mktemp("running"), []
    token = Path.home() / ".ray" / "auth_token"
    had_token = token.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_TEST_SECRET", "do-not-tell")
        executor = build_executor(PLACEMENT, log_dir=folder, say=said.append)
    with executor:
        processes = RayProcesses.of_this_process()
        closing = executor.create("closing", Closing, str(folder / "closed.txt"))
        yield Running(executor, folder, said)

    processes.check_gone()
    assert (folder / "closed.txt").read_text() == "closed\nclosed\n"
    assert token.exists() == had_token
    assert not {"RAY_AUTH_TOKEN", "RAY_AUTH_MODE"} & set(os.environ)
    with pytest.raises(RunFailedError, match=r"closing.nothing was called on an executor that is closed"):
        closing.nothing()
    with pytest.raises(RunFailedError, match="closed"):
        executor.create("late", Worker)
    executor.close()


def test_each_process_has_its_place_in_its_environment_before_torch_is_there(running: Running):
    main = running.executor.create("facts", Worker).facts()
    (sampler,) = running.executor.create("facts-of-sampler", Worker, pool="samplers").facts()

    assert [facts.environment["RANK"] for facts in main] == ["0", "1"]
    assert [facts.environment["LOCAL_RANK"] for facts in main] == ["0", "1"]
    assert {facts.environment["WORLD_SIZE"] for facts in main} == {"2"}
    assert {facts.environment["MASTER_ADDR"] for facts in main} == {"127.0.0.1"}
    assert len({facts.environment["MASTER_PORT"] for facts in main}) == 1
    assert sampler.environment["MASTER_PORT"] != main[0].environment["MASTER_PORT"]
    assert (sampler.environment["RANK"], sampler.environment["WORLD_SIZE"]) == ("0", "1")
    assert (main[0].environment["OMP_NUM_THREADS"], sampler.environment["OMP_NUM_THREADS"]) == ("1", "2")
    assert {facts.environment["VLLM_CPU_OMP_THREADS_BIND"] for facts in main} == {"nobind"}
    assert main[0].environment["HF_HUB_OFFLINE"] == "1"
    assert all("torch" not in facts.modules for facts in (*main, sampler))
    assert [(facts.context.pool, facts.context.rank) for facts in main] == [("main", 0), ("main", 1)]
    assert sampler.folder == os.getcwd()


def test_groups_of_a_pool_share_its_processes_and_pools_share_none(running: Running):
    one = running.executor.create("one", Worker)
    other = running.executor.create("other", Worker, 100)
    elsewhere = running.executor.create("elsewhere", Worker, pool="samplers")

    pids = [facts.pid for facts in one.facts()]
    assert [facts.pid for facts in other.facts()] == pids
    assert len({*pids, elsewhere.facts()[0].pid, os.getpid()}) == 4
    one.add()
    assert other.add() == [101, 101]


def test_two_pools_work_at_once(running: Running):
    main = running.executor.create("busy", Worker)
    samplers = running.executor.create("busy-too", Worker, pool="samplers")

    pending = [main.start("sleep", 0.6), samplers.start("sleep", 0.6)]
    spans = [span for call in pending for span in call.result()]

    assert max(start for start, _ in spans) < min(end for _, end in spans)


def test_a_large_value_is_put_once_and_read_in_place_by_all_workers(running: Running):
    group = running.executor.create("readers", Worker)
    megabytes = 60
    array = np.ones(megabytes << 17)
    group.look_at(array[:1])

    before = [memory for *_, memory in group.look_at(array[:1])]
    reference = running.executor.put(array)
    seen = group.look_at(reference)

    assert [total for total, *_ in seen] == [float(array.size)] * 2
    assert [writable for _, writable, _ in seen] == [False, False]
    grown = [memory - earlier for (*_, memory), earlier in zip(seen, before, strict=True)]
    assert max(grown) < (megabytes << 20) / 4, "each worker made a copy of its own"


def test_an_argument_belongs_to_its_worker_which_may_write_to_it(running: Running):
    group = running.executor.create("writers", Worker)
    array = np.zeros(50_000)

    assert group.change(array) == [50_000.0, 50_000.0]
    assert array.sum() == 0.0


def test_a_worker_of_another_pool_delivers_while_a_method_waits_for_it(running: Running):
    mailbox = running.executor.create("box", Mailbox, pool="samplers")
    sender = running.executor.create("post", Sender)

    waiting = mailbox.start("receive", 3)
    in_place = sender.send(mailbox.remote(), [5, 200_000, 7])

    assert waiting.result() == [5.0, 200_000.0, 7.0]
    assert in_place == [[False, False, False], []]


def test_a_reference_inside_another_value_is_refused(running: Running):
    group = running.executor.create("nested", Worker)
    with pytest.raises(TypeError, match="a reference from put\\(\\) is an argument of its own"):
        group.look_at({"array": running.executor.put(np.ones(3))})


def test_output_of_a_worker_is_in_its_own_log(running: Running):
    running.executor.create("talker", Worker).say("good morning")

    for rank in (0, 1):
        text = (running.log_dir / f"worker-main-{rank}.log").read_text()
        assert "good morning\n" in text
        assert "good morning from below\n" in text
        assert "mmrl.test: good morning, logged" in text
    assert "good morning" not in (running.log_dir / "worker-samplers-0.log").read_text()


def test_only_this_machine_can_reach_the_ray_of_a_run(running: Running):
    children = [child for child in psutil.Process().children(recursive=True) if is_running(child.pid)]
    listening = [
        connection.laddr.ip
        for child in children
        for connection in child.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_no_secret_is_in_a_command_line(running: Running):
    children = [child for child in psutil.Process().children(recursive=True) if is_running(child.pid)]
    commands = "\n".join(" ".join(child.cmdline()) for child in children)
    logs = "\n".join(path.read_text() for path in running.log_dir.glob("*.log"))
    for secret in ("do-not-tell", ray_start._TOKEN):
        assert secret not in commands
        assert secret not in logs


def test_the_executor_says_what_it_started(running: Running):
    (line,) = running.said
    assert line.startswith("workers in pools main: 2, samplers: 1, on a Ray of its own, ready after ")
    assert str(running.log_dir) in line


def test_collectives_of_a_pool_work_with_what_its_processes_were_given(running: Running):
    group = running.executor.create("collective", Worker)
    assert group.all_reduce() == [3.0, 3.0]
    samplers = running.executor.create("threads", Worker, pool="samplers")
    assert samplers.num_threads() == [2]


def test_tensors_are_put_and_read_in_place(running: Running):
    torch = pytest.importorskip("torch")
    group = running.executor.create("tensors", Worker)
    assert group.total(running.executor.put(torch.ones(65_536, dtype=torch.bfloat16))) == [65_536.0, 65_536.0]
    tensor = torch.zeros(50_000)
    assert group.change(tensor) == [50_000.0, 50_000.0]
    assert float(tensor.sum()) == 0.0


def test_gpus_that_the_machine_does_not_have_are_refused_with_what_it_has():
    from mmrl.cluster.ray_pool import check_resources
    from mmrl.cluster.ray_session import RaySession

    placement = PlacementConfig(executor="ray", pools={"main": PoolConfig(workers=2, gpus_per_worker=64)})
    session = RaySession("", "", Path("/nowhere"))
    with pytest.raises(ConfigError, match=r"ask for 128 GPUs \(main: 2 x 64\), and this machine has"):
        check_resources(placement, session)


JOINING = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from cluster_workers import Worker

from mmrl.cluster import build_executor
from mmrl.config.placement import PlacementConfig, PoolConfig
from mmrl.errors import RunFailedError

def placement(**pool):
    pools = {"main": PoolConfig(**pool)}
    return PlacementConfig(executor="ray", address=sys.argv[2], pools=pools, start_s=3 if pool["workers"] > 1 else 60)

with build_executor(placement(workers=1, cpus_per_worker=0.25), log_dir=Path(sys.argv[3]), say=print) as executor:
    print(executor.create("joined", Worker).greet("ada"))
try:
    build_executor(placement(workers=9), log_dir=Path(sys.argv[3]))
except RunFailedError as error:
    print(error)
"""


def test_a_run_joins_a_running_cluster_and_leaves_it_running(running: Running, tmp_path: Path):
    import ray

    address, token = ray.get_runtime_context().gcs_address, ray_start._TOKEN
    command = [sys.executable, "-c", JOINING, str(Path(__file__).parent), address, str(tmp_path)]
    on_loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    environment = {**os.environ, **on_loopback, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    assert done.returncode == 0, done.stderr
    opening, greeting, refusal = done.stdout.splitlines()
    assert f"on the Ray cluster at {address}" in opening
    assert greeting == "hello ada, from 0"
    assert refusal.startswith("pool 'main' asks for 9 x 0 GPU and 1 CPU, and found no place on the Ray cluster")
    assert running.executor.create("still-there", Worker).rank() == 0


def test_a_cluster_that_is_not_there_is_an_error_of_the_config():
    command = [sys.executable, "-c", JOINING, str(Path(__file__).parent), "127.0.0.1:1", "/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "ConfigError: placement.address: there is no Ray cluster to join at '127.0.0.1:1'" in done.stderr


def test_ranks_run_node_by_node_and_on_a_node_by_gpu():
    places = [
        Place(1, "node-a", "10.0.0.1", ("3",)),
        Place(2, "node-b", "10.0.0.2", ("0",)),
        Place(3, "node-a", "10.0.0.1", ("0",)),
        Place(4, "node-b", "10.0.0.2", ("10",)),
        Place(5, "node-b", "10.0.0.2", ("9",)),
    ]

    order = ray_pool._rank_order(places)
    contexts = ray_pool._contexts("main", [places[index] for index in order], PoolConfig(workers=5, gpus_per_worker=1))
    environment = ray_pool._environment(contexts[3], contexts, master=("10.0.0.1", 29500))

    assert [places[index].pid for index in order] == [3, 1, 2, 5, 4]
    assert [(one.rank, one.local_rank, one.node) for one in contexts] == [
        (0, 0, "10.0.0.1"),
        (1, 1, "10.0.0.1"),
        (2, 0, "10.0.0.2"),
        (3, 1, "10.0.0.2"),
        (4, 2, "10.0.0.2"),
    ]
    # A process sees its own GPUs only, so its device is the first.
    assert (environment["RANK"], environment["LOCAL_RANK"], environment["LOCAL_WORLD_SIZE"]) == ("3", "0", "3")
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("10.0.0.1", "29500")
    assert "GLOO_SOCKET_IFNAME" not in environment or "GLOO_SOCKET_IFNAME" in os.environ


def test_variables_for_workers_are_passed_on_but_no_secrets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("HF_TOKEN", "hf_do_not_tell")
    monkeypatch.setenv("VLLM_API_KEY", "do-not-tell")
    context = WorkerContext("main")

    environment = ray_pool._environment(context, [context], master=("127.0.0.1", 1))

    assert environment["NCCL_DEBUG"] == "INFO"
    assert not {"HF_TOKEN", "VLLM_API_KEY"} & set(environment)
