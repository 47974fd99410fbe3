"""What runs first in a sandbox: takes everything away that the program must not have, then becomes the program.

A script of its own, started as `python -I -S init.py SPEC`; SPEC is a `Spec`, marshalled, as hexadecimal
digits. It imports nothing of mmrl and little else, since it runs once for each test of each response. With namespaces
the program sees a file system of system folders (read-only) and an empty /tmp, no network, and no process but its own;
without, it has the limits, and where this is root a user of its own.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import sys

Spec = dict
"""argv; folder: the program's files, and where the new root is made; namespaces: whether to make them; uid: the user to
become, None for the present one; visible: host paths that the program sees; report_fd: where trouble is told;
memory_bytes (0 for none), cpu_s, processes, output_bytes, disk_bytes."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/localtime",
    "/etc/chromium",
    "/etc/chromium.d",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_NEW_USER, _NEW_NAMESPACES = 0x10000000, 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
_READ_ONLY, _NO_SUID, _NO_DEV, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
_DETACH = 2
_KILL = 9
_SET_ATTRIBUTES, _RECURSIVELY, _HERE = 442, 0x8000, -100
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_DIE_WITH_PARENT, _DUMPABLE, _REAP_ORPHANS, _NO_NEW_PRIVILEGES = 1, 4, 36, 38

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    spec: Spec = marshal.loads(bytes.fromhex(sys.argv[1]))
    os.set_inheritable(spec["report_fd"], False)
    try:
        _enter(spec)
    except OSError as error:
        os.write(spec["report_fd"], f"{error.strerror}: {error.filename or ''}".encode())
        os._exit(1)


def _enter(spec: Spec) -> None:
    assert spec["namespaces"] or spec["uid"] is not None, "the program could kill every process of this user"
    _control(_DIE_WITH_PARENT, _KILL)
    _control(_REAP_ORPHANS, 1)
    if spec["namespaces"]:
        is_root = spec["uid"] is not None
        _unshare(0 if is_root else _NEW_USER)
        _make_root(spec)
    child = os.fork()
    if child == 0:
        _be_init(spec) if spec["namespaces"] else _be_program(spec)
    _leave_like(child)


def _unshare(new_user: int) -> None:
    """Namespaces of mounts, hosts, processes, IPC and network; of users too where this is not root."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(new_user | _NEW_NAMESPACES), "namespaces")
    if new_user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


def _make_root(spec: Spec) -> None:
    """A new root: system folders and `visible` read-only, devices, an empty /tmp that holds the program's files."""
    _mount("none", "/", None, _PRIVATE | _RECURSIVE)
    files = {name: _read(os.path.join(spec["folder"], name)) for name in os.listdir(spec["folder"])}
    root = spec["folder"]
    _mount("tmpfs", root, "tmpfs", _NO_SUID | _NO_DEV, "mode=755,size=4m")
    for path in _SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif os.path.isdir(path):
            _show(root, path)
    # Before what is shown: the installation itself may lie below /tmp.
    for path, size in (("/tmp", spec["disk_bytes"]), ("/dev/shm", spec["disk_bytes"])):
        os.makedirs(root + path, exist_ok=True)
        _mount("tmpfs", root + path, "tmpfs", _NO_SUID | _NO_DEV, f"mode=1777,size={size}")
    for path in (*_SETTINGS, *spec["visible"]):
        if os.path.exists(path) and not path.startswith("/usr/"):
            _show(root, path)
    for path in _DEVICES:
        _show(root, path, is_device=True)
    os.mkdir(root + "/proc")
    for name, content in files.items():
        with open(f"{root}/tmp/{name}", "wb") as file:
            file.write(content)
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _DETACH), "the old root")
    os.chdir("/tmp")


def _show(root: str, path: str, *, is_device: bool = False) -> None:
    target = root + path
    os.makedirs(target if os.path.isdir(path) else os.path.dirname(target), exist_ok=True)
    if not os.path.isdir(path):
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    _mount(path, target, None, _BIND | _RECURSIVE)
    attributes = (ctypes.c_uint64 * 4)(_NO_SUID | (0 if is_device else _READ_ONLY | _NO_DEV), 0, 0, 0)
    arguments = (_HERE, os.fsencode(target), _RECURSIVELY, attributes, ctypes.sizeof(attributes))
    _check(_libc.syscall(_SET_ATTRIBUTES, *arguments), path)


def _be_init(spec: Spec) -> None:
    """The first process of the namespace: all others die with it. The program is its child, as a program expects."""
    # Containers that hide parts of /proc allow no other one; the program goes without then.
    _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_NO_SUID | _NO_DEV), None)
    _become(spec["uid"])
    _control(_DIE_WITH_PARENT, _KILL)
    program = os.fork()
    if program == 0:
        _be_program(spec)
    _control(_DUMPABLE, 0)
    _leave_like(program)


def _be_program(spec: Spec) -> None:
    try:
        if not spec["namespaces"]:
            _become(spec["uid"])
            os.chdir(spec["folder"])
        os.setsid()
        _limit(spec)
        os.execv(spec["argv"][0], spec["argv"])
    except OSError as error:
        os.write(spec["report_fd"], f"{error.strerror}: {spec['argv'][0]}".encode())
    os._exit(1)


def _become(uid: int | None) -> None:
    """Another user, or the present one without capabilities; no way back to more."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _control(_NO_NEW_PRIVILEGES, 1)
    _libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def _limit(spec: Spec) -> None:
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: spec["cpu_s"],
        resource.RLIMIT_FSIZE: spec["output_bytes"],
        resource.RLIMIT_NOFILE: 512,
        resource.RLIMIT_NPROC: spec["processes"],
    }
    if spec["memory_bytes"]:
        limits[resource.RLIMIT_AS] = spec["memory_bytes"]
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))


def _leave_like(child: int) -> None:
    """Wait for the child, and for orphans meanwhile; end with its code, or with 128 + n if signal n ended it."""
    pid = 0
    while pid != child:
        pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(_libc.mount(*texts, ctypes.c_ulong(flags), options.encode() if options else None), target)


def _control(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    main()
