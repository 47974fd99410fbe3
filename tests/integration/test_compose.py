"""docker-compose.yml: as its specification wants it, and each service's command started here in the same order with the
same environment. There is no container engine in these tests, so that names of services become this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SECRETS = {
    "POSTGRES_PASSWORD": "pg-secret-1",
    "RAY_AUTH_TOKEN": "ray-secret-2" * 4,
    "GRAFANA_PASSWORD": "g-secret-3",
    "CONSOLE_PASSWORD": "console-secret-4",
}
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def compose() -> dict[str, Any]:
    return YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())  # type: ignore[no-any-return]


def substituted(text: str) -> str:
    """As compose reads `${NAME}`, `${NAME:-default}` and `${NAME:?message}`."""

    def value_of(match: re.Match[str]) -> str:
        if match[2] == "?":
            return SECRETS[match[1]]
        return SECRETS.get(match[1], match[3] or "")

    return VARIABLE.sub(value_of, text)


def test_the_file_is_as_the_specification_wants_it() -> None:
    import compose_spec

    data = compose()
    assert set(compose_spec.PyCompose.from_json(json.dumps(data)).service_names()) == set(data["services"])
    data["services"]["worker"]["nonsense"] = 1
    with pytest.raises(ValueError, match="nonsense"):
        compose_spec.PyCompose.from_json(json.dumps(data))


def test_every_service_waits_for_services_that_exist_and_tells_its_health() -> None:
    services = compose()["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services, (name, other)
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], (name, other)
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), (name, port)
    assert {"cpu", "gpu"} <= {profile for service in services.values() for profile in service.get("profiles", [])}


def test_no_secret_stands_in_a_file() -> None:
    """Each comes from the environment, and one that is not set stops the start with its name."""
    text = (ROOT / "docker-compose.yml").read_text()
    needed = {match[1] for match in VARIABLE.finditer(text) if match[2] == "?"}
    assert needed == set(SECRETS)
    example = (ROOT / "configs" / "cluster" / "env.example").read_text()
    for name in needed:
        assert re.search(rf"^{name}=$", example, re.MULTILINE)
    assert ".env" in (ROOT / ".gitignore").read_text().split()
    assert ".env" in (ROOT / ".dockerignore").read_text().split()


def test_the_other_files_of_a_cluster_name_commands_and_services_that_exist() -> None:
    folder = ROOT / "configs" / "cluster"
    services = compose()["services"]
    scraped = YAML(typ="safe").load((folder / "prometheus.yml").read_text())["scrape_configs"]
    for job in scraped:
        (where,) = job["dns_sd_configs"]
        (service,) = where["names"]
        assert f"={where['port']}" in " ".join(services[service]["command"]), service
    kinds = [document["kind"] for document in YAML(typ="safe").load_all((folder / "kuberay.yaml").read_text())]
    assert kinds == ["PersistentVolumeClaim", "RayCluster", "Deployment"]
    subprocess.run(["bash", "-n", str(folder / "slurm.sbatch")], check=True)


class Machine:
    """The services on this machine: names of hosts and ports, and paths of containers, become those here."""

    def __init__(self, home: Path, database_port: int, sockets: Path) -> None:
        """sockets: a folder with a short name, since those of sockets have at most 107 characters."""
        self.sockets = sockets
        self.services = compose()["services"]
        self.ports = {"ray": free_port(), "dashboard": free_port(), "ray_metrics": free_port()}
        self.ports |= {"worker": free_port(), "console": free_port()}
        self.home = home
        self._names = {
            "postgres:5432": f"127.0.0.1:{database_port}",
            "ray-head:6379": f"127.0.0.1:{self.ports['ray']}",
            "localhost:6379": f"127.0.0.1:{self.ports['ray']}",
            "--port=6379": f"--port={self.ports['ray']}",
            "ray-head:8265": f"127.0.0.1:{self.ports['dashboard']}",
            "--dashboard-port=8265": f"--dashboard-port={self.ports['dashboard']}",
            "--metrics-export-port=8090": f"--metrics-export-port={self.ports['ray_metrics']}",
            "--port=9100": f"--port={self.ports['worker']}",
            "localhost:9100": f"127.0.0.1:{self.ports['worker']}",
            "--port=8501": f"--port={self.ports['console']}",
            "localhost:8501": f"127.0.0.1:{self.ports['console']}",
            "0.0.0.0": "127.0.0.1",
            "/var/lib/mmrl": str(home),
        }

    def here(self, text: str) -> str:
        text = substituted(text)
        for there, here in self._names.items():
            text = text.replace(there, here)
        return text

    def environment(self, service: str) -> dict[str, str]:
        """The service's own, and of this process only what a program needs to be found."""
        own = {name: self.here(str(value)) for name, value in self.services[service]["environment"].items()}
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        settings = {"MMRL_JOBS_POLL_S": "0.2", "MMRL_JOBS_BEAT_S": "0.5", "MMRL_JOBS_LEASE_S": "20"}
        return kept | own | settings | {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(self.home)}

    def command(self, service: str, *more: str) -> list[str]:
        words = [self.here(word) for word in self.services[service]["command"]]
        if words[:2] == ["ray", "start"]:
            words += ["--node-ip-address=127.0.0.1", "--object-store-memory=100000000"]
            words += [f"--temp-dir={self.sockets}"] if "--head" in words else ["--num-cpus=2"]
        return [*words, *more]

    def wait_until_healthy(self, service: str, process: subprocess.Popen[bytes]) -> None:
        words = [self.here(word) for word in self.services[service]["healthcheck"]["test"]]
        assert words.pop(0) == "CMD"
        end = time.monotonic() + 120
        while True:
            assert process.poll() is None, f"{service} has ended"
            done = subprocess.run(words, env=self.environment(service), capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            assert time.monotonic() < end, f"{service}: {done.stdout}{done.stderr}"
            time.sleep(0.5)

    @contextmanager
    def running(self, service: str) -> Iterator[subprocess.Popen[bytes]]:
        log = self.home / f"{service}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.command(service),
                cwd=ROOT,
                env=self.environment(service),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield process
            except BaseException:
                print(f"--- {service}\n{log.read_text(errors='replace')[-4000:]}")
                raise
            finally:
                end_group(process)

    def cli(self, *words: str) -> str:
        service = self.services["cli"]
        assert service["entrypoint"][-1] == "mmrl"
        done = subprocess.run(
            ["mmrl", *words], cwd=ROOT, env=self.environment("cli"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def end_group(process: subprocess.Popen[bytes]) -> None:
    for number, patience_s in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@pytest.fixture
def database_port() -> Iterator[int]:
    """As the service `postgres` would be: the user and the database that its environment names."""
    import psycopg

    server = PostgresServer.begin()
    environment = compose()["services"]["postgres"]["environment"]
    try:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {environment['POSTGRES_USER']} LOGIN PASSWORD 'pg-secret-1'")
            connection.execute(f"CREATE DATABASE {environment['POSTGRES_DB']} OWNER {environment['POSTGRES_USER']}")
        yield server.port
    finally:
        server.end()


@pytest.fixture
def sockets() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mmrl-rc-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.ray
@pytest.mark.postgres
def test_the_services_start_in_order_and_a_job_goes_through_them(
    tmp_path: Path, database_port: int, sockets: Path
) -> None:
    """postgres, migrate, ray-head, a Ray worker, worker and console; then a job submitted by `cli` runs on Ray."""
    (tmp_path / "noop.yaml").write_text("name: probe\nkind: noop\nnoop: {steps: 3, checkpoint_every: 1}\n")
    machine = Machine(tmp_path, database_port, sockets)
    migrated = subprocess.run(
        machine.command("migrate"), env=machine.environment("migrate"), capture_output=True, text=True, check=False
    )
    assert migrated.returncode == 0, migrated.stderr
    with machine.running("ray-head") as head:
        machine.wait_until_healthy("ray-head", head)
        with machine.running("ray-cpu"), machine.running("worker") as worker, machine.running("console") as console:
            machine.wait_until_healthy("worker", worker)
            job = machine.cli("job", "submit", str(tmp_path / "noop.yaml"), "--backend", "ray").strip()
            machine.cli("job", "wait", job, "--timeout", "150")
            found = json.loads(machine.cli("job", "show", job, "--json"))
            assert (found["state"], found["step"], found["attempts"][0]["backend"]) == ("succeeded", 3, "ray")
            machine.wait_until_healthy("console", console)
            assert "Password or access token" in get(f"http://127.0.0.1:{machine.ports['console']}/sign-in")
            waiting = machine.cli("job", "submit", str(tmp_path / "noop.yaml"), "--pool", "elsewhere").strip()
            assert len(waiting) == 36
            metrics = get(f"http://127.0.0.1:{machine.ports['worker']}/metrics")
            check_dashboard(metrics)
            assert json.loads(get(f"http://127.0.0.1:{machine.ports['worker']}/healthz"))["ok"]
    for log in tmp_path.glob("*.log"):
        text = log.read_text(errors="replace")
        assert not [name for name, secret in SECRETS.items() if secret in text], log.name


def check_dashboard(metrics: str) -> None:
    """Every figure of the dashboard is one that a worker gives."""
    there = set(re.findall(r"^(mmrl_\w+)", metrics, re.MULTILINE))
    dashboard = json.loads((ROOT / "configs" / "cluster" / "grafana" / "dashboards" / "mmrl.json").read_text())
    asked = set(re.findall(r"\bmmrl_\w+", json.dumps([panel["targets"] for panel in dashboard["panels"]])))
    assert len(asked) > 10
    # Counted by state only once a job has ended, which one has.
    assert asked <= there, asked - there
