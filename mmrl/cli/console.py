"""`mmrl console`: the web console, and a worker beside it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from mmrl.cli.output import JsonOption, note, print_json

PortOption = Annotated[
    int | None,
    typer.Option(min=0, max=65535, show_default=False, help="Port; 8501, or a free one where that is taken; 0: free."),
]
AddressOption = Annotated[
    str, typer.Option(metavar="A", help="Address to listen at; another than this machine's own needs a sign-in.")
]
WorkerOption = Annotated[
    bool, typer.Option("--worker/--no-worker", help="Start a worker too, unless one runs on this machine.")
]
PasswordOption = Annotated[
    bool,
    typer.Option("--set-password", help="Ask for a password that people must give, or read it from stdin; then end."),
]


def console(
    port: PortOption = None,
    address: AddressOption = "127.0.0.1",
    worker: WorkerOption = True,
    set_password: PasswordOption = False,
    json: JsonOption = False,
) -> None:
    """Open the web console: bring data, start runs and watch them in a browser.

    Prints its address. Ctrl-C or SIGTERM ends it and its worker: runs write a checkpoint and go back to the queue. A
    second Ctrl-C leaves them running for the next worker of this machine.
    """
    from mmrl.errors import ConfigError

    if find_spec("streamlit") is None:
        raise ConfigError(
            "mmrl console: streamlit is not installed; `make quickstart` or `pip install 'mmrl[console]'` does that"
        )
    from console.access import check_access
    from console.passwords import save_password
    from console.settings import load_settings
    from mmrl.cli.console_processes import ConsoleProcesses, choose_port, may_start_worker
    from mmrl.jobs.database import Database
    from mmrl.jobs.users import Users

    if set_password:
        note(f"the password's hash is in {save_password(_asked_password())}; a console that runs asks for it at once")
        return
    with Database.open() as database:
        check_access(load_settings(), address, Users(database))
        has_worker = worker and may_start_worker(database, say=note)
    processes = ConsoleProcesses(address, choose_port(address, port), with_worker=has_worker, say=note)

    def tell(url: str) -> None:
        if json:
            print_json({"url": url})
        else:
            print(url, flush=True)

    processes.run(on_ready=tell)


def _asked_password() -> str:
    """Twice from a terminal, unseen; one line of anything else."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    text: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return text
