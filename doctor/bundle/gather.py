"""Collect the contents of a bundle: the machine, earlier runs, and files added by the user."""

from __future__ import annotations

import getpass
import os
import platform
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from zinc_rt.backends.amd.hang import HangReport
from zinc_rt.doctor import live
from zinc_rt.doctor.bundle.format import MANIFEST, REPORT_SCHEMA, parse_json, read
from zinc_rt.doctor.bundle.make import BundleMaker
from zinc_rt.doctor.capture import MachineCapture, capture
from zinc_rt.doctor.device_nodes import list_driver_nodes
from zinc_rt.doctor.diagnose import diagnose
from zinc_rt.host.errors import InputError
from zinc_rt.host.files import state_directory
from zinc_rt.kmd.driver import Driver
from zinc_rt.probes.child import run_in_child
from zinc_rt.probes.device import open_device
from zinc_rt.probes.device_spec import DeviceSpec

_FILES = ("/proc/version", "/proc/cmdline", "/proc/sys/kernel/osrelease")
_FOLDERS = ("/sys/module/amdgpu", "/sys/class/kfd/kfd/topology", "/sys/class/drm")
_SKIPPED = ("ip_discovery",)  # hundreds of files that the chip's name stands for


def capture_driver(driver: Driver) -> MachineCapture:
    """Return a capture of a simulated machine: its files, its device nodes, and the replies of its driver."""
    files: dict[str, bytes] = {}
    unreadable: dict[str, str] = {}

    def read(path: str) -> None:
        try:
            files[path.lstrip("/")] = driver.read_file(path)
        except IsADirectoryError:
            walk_files(path)
        except OSError as error:
            unreadable[path.lstrip("/")] = error.strerror or str(error)

    def walk_files(folder: str) -> None:
        try:
            names = driver.list_dir(folder)
        except OSError as error:
            unreadable[folder.lstrip("/")] = error.strerror or str(error)
            return
        for name in names:
            if name not in _SKIPPED:
                read(f"{folder}/{name}")

    for path in _FILES:
        read(path)
    for folder in _FOLDERS:
        walk_files(folder)
    try:
        files["kernel.log"] = driver.read_file("/dev/kmsg")
    except OSError as error:
        unreadable["kernel.log"] = error.strerror or str(error)
    list_driver_nodes(driver, files, unreadable)
    live.query_ioctls(files, unreadable, driver)
    return MachineCapture(files, unreadable)


MACHINE_SECONDS = 30.0
HANGS = Path("zinc-rt-hangs")  # where models leave them, AmdBackend's default
LEFT = "devcoredump.bin"  # GPU memory: anybody's data
_MOST = 64 << 20  # of a single file that is looked at


def begin_bundle(spec: DeviceSpec) -> BundleMaker:
    """Create a bundle with the machine and doctor's findings; a simulated device counts as a separate
    machine."""
    maker = BundleMaker(simulated=spec.simulated, known=find_private_names())
    machine = inspect_machine(spec)
    if machine is None:
        maker.notes.append("the machine could not be inspected")
        machine = MachineCapture({}, {})
    maker.add_machine(machine, diagnose(machine).findings)
    return maker


def inspect_machine(spec: DeviceSpec) -> MachineCapture | None:
    """Inspect the machine in a separate process, because reading files of a faulty driver may block
    forever."""
    if spec.simulated:
        ended = run_in_child(partial(_capture_simulated, spec), MACHINE_SECONDS)
    else:
        ended = run_in_child(partial(capture, Path("/"), ioctls=True), MACHINE_SECONDS)
    return ended.value if isinstance(ended.value, MachineCapture) else None


def _capture_simulated(spec: DeviceSpec) -> MachineCapture:
    return capture_driver(open_device(spec))


def find_private_names() -> dict[str, list[str]]:
    """Return the names of this machine and its users, which are redacted everywhere."""
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")} | {Path("~").expanduser().name}
    with suppress(OSError, KeyError):
        users.add(getpass.getuser())
    with suppress(ImportError, KeyError):
        import pwd

        users |= set(pwd.getpwuid(os.getuid()).pw_gecos.replace(",", " ").split())
    hosts = {platform.node(), platform.node().partition(".")[0]}
    return {"host": sorted(filter(None, hosts)), "user": sorted(filter(None, users))}


def add_journals(maker: BundleMaker, spec: DeviceSpec, folder: Path | None = None) -> None:
    """Add the journals of probes: started and finished probes, and the passed tests per setup."""
    if not spec.simulated:
        for name in ("pm4-test.journal", "checked.json"):
            _add_file(maker, (folder or state_directory()) / name, f"logs/{name}", "log")


def add_stages(maker: BundleMaker, spec: DeviceSpec, folder: Path | None = None) -> None:
    """Add the stages of a bring-up."""
    folder = folder or state_directory()
    stages = folder / "bring-up" / device_label(spec)
    for path in sorted(stages.glob("*")) if stages.is_dir() else []:
        if path.name.endswith(".json"):
            _add_file(maker, path, f"reports/bring-up-{path.name}", "report")
        elif path.suffix in (".log", ".journal"):
            _add_file(maker, path, f"logs/bring-up-{path.name}", "log")


def device_label(spec: DeviceSpec) -> str:
    """Return the folder name of a device."""
    return spec.option.strip("/").replace("/", "-").replace(":", "-").replace("@", "-")


def add_hangs(maker: BundleMaker, folder: Path = HANGS) -> None:
    """Add folders of hang reports, newest first, so that the oldest are dropped."""
    folders = [path for path in folder.glob("hang-*") if path.is_dir() and not path.is_symlink()]
    for path in sorted(folders, key=lambda path: path.name, reverse=True):
        _add_hang(maker, path, path.name)


def add_hang(maker: BundleMaker, report: HangReport, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="zinc-rt-hang-") as folder:
        _add_hang(maker, report.save(Path(folder)), name)


def _add_hang(maker: BundleMaker, folder: Path, name: str) -> None:
    for path in sorted(folder.iterdir()):
        if path.name == LEFT:
            maker.notes.append(f"hang {name}: {LEFT} is omitted because it contains GPU memory")
        else:
            _add_file(maker, path, f"hangs/{name}/{path.name}", "hang")


def add_paths(maker: BundleMaker, paths: Iterable[Path]) -> None:
    """Add files given by the user: reports, facts, logs, folders, other bundles. Raises InputError for a
    missing path."""
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file", next="--add what there is")
        if path.is_dir() and (path / MANIFEST).exists():
            for name, content in read(path).files.items():
                if name.partition("/")[0] in ("reports", "hangs", "logs", "facts"):
                    maker.add(
                        name,
                        content,
                        {"reports": "report", "hangs": "hang", "facts": "facts"}.get(
                            name.partition("/")[0], "log"
                        ),
                    )
        elif path.is_dir():
            for item in sorted(path.rglob("*")):
                if item.is_file() and not item.is_symlink():
                    _add_matching(maker, item, item.relative_to(path.parent).as_posix())
        else:
            _add_matching(maker, path, path.name)


def _add_matching(maker: BundleMaker, path: Path, name: str) -> None:
    """Add a file according to its content."""
    if path.suffix == ".json" and path.stat().st_size < _MOST:
        body = parse_json(path.read_bytes())
        if isinstance(body, dict) and body.get("schema") == REPORT_SCHEMA:
            _add_file(maker, path, f"reports/{name}", "report")
            return
        if isinstance(body, dict) and {"chip", "facts"} <= body.keys():
            _add_file(maker, path, f"facts/{name}", "facts")
            return
    _add_file(maker, path, f"logs/{name}", "log")


def _add_file(maker: BundleMaker, path: Path, name: str, kind: str) -> None:
    """Add a file; if it is too large to be searched completely, add only its end."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST))
            maker.add(name, file.read(_MOST), kind)
    except FileNotFoundError:
        return
    except OSError as error:
        maker.notes.append(f"{path}: cannot be read: {error.strerror}")
