"""Data of a live machine other than files: identity, kernel log, packages, firmware, lspci, users, ioctls."""

from __future__ import annotations

import grp
import json
import os
import pwd
from collections.abc import Collection
from pathlib import Path

from zinc_rt.doctor import sources
from zinc_rt.doctor.reading import Files, Reasons, read_one, run_command
from zinc_rt.kmd.driver import Driver

KMSG = "/dev/kmsg"
LOG_RECORDS = 200_000


def read_identity() -> str:
    """Return the identity of this process as `id` prints it, with its current groups, not those after the next
    login.
    """

    def user_name(uid: int) -> str:
        try:
            return f"{uid}({pwd.getpwuid(uid).pw_name})"
        except KeyError:
            return str(uid)

    def group_name(gid: int) -> str:
        try:
            return f"{gid}({grp.getgrgid(gid).gr_name})"
        except KeyError:
            return str(gid)

    groups = sorted({os.getegid(), *os.getgroups()})
    return (
        f"uid={user_name(os.geteuid())} gid={group_name(os.getegid())} "
        f"groups={','.join(map(group_name, groups))}\n"
    )


def read_kernel_log(files: Files, unreadable: Reasons) -> None:
    """Read /dev/kmsg from its beginning; otherwise the journal of this boot, which members of some groups
    may read."""
    from zinc_rt.backends.amd.kmd_log import record_text

    try:
        fd = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        output = run_command(("journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager", "-q"))
        if isinstance(output, bytes) and output.count(b"\n") > 1:
            files["kernel.log"] = output
        else:
            unreadable["kernel.log"] = error.strerror or str(error)
        return
    lines: list[str] = []
    try:
        while len(lines) < LOG_RECORDS:
            try:
                record = os.read(fd, 8192)
            except BrokenPipeError:
                continue  # overwritten before it was read: the next one follows
            except OSError:
                break  # EAGAIN: that was all
            if not record:
                break
            lines.append(record_text(record))
    finally:
        os.close(fd)
    files["kernel.log"] = ("\n".join(lines) + "\n").encode()


MANAGERS = (  # the first that answers
    ("dpkg-query", "-W", "-f", "${Package} ${Version}\n"),
    ("rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n"),
    ("pacman", "-Q"),
)


def list_packages(files: Files, unreadable: Reasons) -> None:
    """Return packages.txt: packages relevant for a GPU, one `name version` per line."""
    for command in MANAGERS:
        output = run_command(command)
        if isinstance(output, bytes):
            lines = [
                line for line in output.decode(errors="replace").splitlines() if line.startswith(sources.PACKAGES)
            ]
            files["packages.txt"] = ("\n".join(sorted(lines)) + "\n").encode()
            return
    unreadable["packages.txt"] = "no dpkg, rpm or pacman"


def read_firmware(files: Files, unreadable: Reasons, devices: dict[str, Path]) -> None:
    """Return the file firmware.txt from debugfs, which only root can read. `fw_version/` in sysfs has most
    of it for all users."""
    cards = [name for name in devices if name.startswith("card")]
    texts = []
    for card in cards:
        where = f"sys/kernel/debug/dri/{card.removeprefix('card')}/amdgpu_firmware_info"
        read: Files = {}
        read_one(Path("/") / where, where, read, unreadable)
        texts += [f"# {card}\n".encode() + data for data in read.values()]
    if texts:
        files["firmware.txt"] = b"".join(texts)
    elif cards and os.geteuid() != 0:
        unreadable["firmware.txt"] = "debugfs requires root"


def run_lspci(files: Files, unreadable: Reasons) -> None:
    """Run lspci. Reading configuration space wakes suspended devices, so it is not called while a GPU is
    suspended."""
    output = run_command(("lspci", "-nnvvv"))
    if isinstance(output, bytes):
        files["lspci.txt"] = output
    else:
        unreadable["lspci.txt"] = output


def list_device_users(files: Files, devices: dict[str, Path]) -> None:
    """Return users.txt: `pid name node` for each process that has a GPU's node open, as far as this user can
    see.
    """
    if not devices:
        return
    lines = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or folder.name == str(os.getpid()):
            continue
        try:
            opened = {str(fd.readlink()) for fd in (folder / "fd").iterdir()}
            name = (folder / "comm").read_text(errors="replace").strip()
        except OSError:
            continue
        nodes = sorted(path for path in opened if path == "/dev/kfd" or path.startswith("/dev/dri/"))
        lines += [f"{folder.name} {name} {node}" for node in nodes]
    files["users.txt"] = ("\n".join(lines) + "\n").encode()


def list_blocked_tasks(proc: Path) -> str:
    """Return tasks.txt: the tasks in uninterruptible sleep, as `ps -eo pid,stat,comm,wchan:40` prints them."""
    lines = ["PID STAT COMMAND WCHAN"]
    for folder in sorted(proc.glob("[0-9]*")):
        try:
            stat = (folder / "stat").read_text(errors="replace")
            name, _, rest = stat.partition("(")[2].rpartition(")")
            if rest.split()[0] == "D":
                waits_in = (folder / "wchan").read_text(errors="replace").strip()
                lines.append(f"{folder.name} D {name} {waits_in or '-'}")
        except (OSError, IndexError):
            continue
    return "\n".join(lines) + "\n"


MARKS = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")


def find_container_marks(files: Files) -> None:
    """Return the files whose presence indicates a container."""
    for mark in MARKS:
        if Path(mark).exists():
            files.setdefault(mark.strip("/"), b"")


def query_ioctls(
    files: Files, unreadable: Reasons, driver: Driver, devices: Collection[str] | None = None
) -> None:
    """Return the file ioctl.json: the replies of KFD and the render nodes. Nothing is allocated; see
    kmd/discover.py. `devices`: only these, by name."""
    from zinc_rt.kmd.discover import check_kfd, check_user_queues, find_gpus

    try:
        gpus = [gpu for gpu in find_gpus(driver).gpus if devices is None or gpu.name in devices]
    except (OSError, ValueError) as error:
        unreadable["ioctl.json"] = str(error)
        return
    answers = {}
    for gpu in gpus:
        t1, t2 = check_kfd(driver, gpu), check_user_queues(driver, gpu)
        answers[gpu.name] = {
            tier: {"usable": item.usable, "why": item.why, "facts": item.facts}
            for tier, item in (("t1", t1), ("t2", t2))
        }
    body = {"schema": "zinc-rt-ioctl/1", "gpus": answers}
    files["ioctl.json"] = (json.dumps(body, indent=1, default=str) + "\n").encode()
