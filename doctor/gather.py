"""Collect a capture from a live machine, or from a mounted file system."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

from zinc_rt.doctor import live, sources
from zinc_rt.doctor.device_nodes import list_host_nodes
from zinc_rt.doctor.reading import Files, Reasons, read_all, read_one

PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
AMD = "0x1002"
PATIENCE_SECONDS = 3.0  # with a GPU whose sensors do not answer
BETWEEN_SAMPLES_SECONDS = 3.0
LATER = "later/"
ASLEEP = "the GPU is suspended, and reading would wake it"


def gather_files(root: Path, *, ioctls: bool, sample_hung: bool = False) -> tuple[Files, Reasons]:
    """Collect files and reasons. `sample_hung`: also take two samples that show whether the GPU advances."""
    files: Files = {}
    unreadable: Reasons = {}
    for pattern in sources.MACHINE:
        read_all(root, pattern, files, unreadable)
    release = (files.get("proc/sys/kernel/osrelease") or b"").decode(errors="replace").strip()
    if release:
        read_all(root, f"boot/config-{release}", files, unreadable)
    if "proc/cpuinfo" in files:
        files["proc/cpuinfo"] = files["proc/cpuinfo"].partition(b"\n\n")[0] + b"\n"  # one core says it all
    _list_functions(root, files, unreadable)
    devices = _find_devices(root)
    for name, device in devices.items():
        _read_device(root, name, device, files, unreadable)
    if (root / "dev").is_dir():
        list_host_nodes(root, files, unreadable)
    if root == Path("/"):
        _query_machine(files, unreadable, devices, ioctls=ioctls and not sample_hung)
    if sample_hung:
        _sample_hung(root, devices, files, unreadable)
    return files, unreadable


def _sample_hung(root: Path, devices: dict[str, Path], files: Files, unreadable: Reasons) -> None:
    """Take two samples, each in a separate thread, because reading the registers of a lost GPU may never
    return.
    """
    if any(_is_suspended(files, name) for name in devices):
        unreadable["sys/kernel/debug/kfd/hqds"] = ASLEEP
        return
    for prefix in ("", LATER):
        read: Files = {}
        refused: Reasons = {}

        def take_sample(read: Files = read, refused: Reasons = refused) -> None:
            for pattern in sources.HUNG:
                read_all(root, pattern, read, refused)

        thread = threading.Thread(target=take_sample, daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)
        refused |= {"sys/kernel/debug/kfd/hqds": "no reply: the driver is blocked"} if thread.is_alive() else {}
        lines = read.get("proc/interrupts", b"").splitlines(keepends=True)
        kept = [line for index, line in enumerate(lines) if index == 0 or b"amdgpu" in line]
        for name, data in dict(read).items():
            files[prefix + name] = b"".join(kept) if name == "proc/interrupts" else data
        unreadable |= {prefix + name: reason for name, reason in dict(refused).items()}
        if not prefix:
            time.sleep(BETWEEN_SAMPLES_SECONDS)
    for path in sorted(root.glob(sources.DUMP)):
        read_one(path, path.relative_to(root).as_posix(), files, unreadable)
    files["tasks.txt"] = live.list_blocked_tasks(root / "proc").encode()


def _list_functions(root: Path, files: Files, unreadable: Reasons) -> None:
    """List every PCI function by vendor and class, and AMD's graphics functions completely, because one may have
    no driver.
    """
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        where = f"sys/bus/pci/devices/{folder.name}"
        for name in ("vendor", "class"):
            read_one(folder / name, f"{where}/{name}", files, unreadable)
        amd = files.get(f"{where}/vendor", b"").strip() == AMD.encode()
        if amd and files.get(f"{where}/class", b"").startswith((b"0x03", b"0x1200")):
            for name in sources.FUNCTION:
                read_one(folder / name, f"{where}/{name}", files, unreadable)
            _read_bridges(root, folder, files, unreadable)


def _find_devices(root: Path) -> dict[str, Path]:
    """Return AMD's DRM devices by name, `card0` and `renderD128`, each with its PCI folder."""
    paths = {}
    for pattern in ("card[0-9]*", "renderD*"):
        for entry in sorted((root / "sys/class/drm").glob(pattern)):
            if "-" in entry.name:
                continue
            try:
                vendor = (entry / "device/vendor").read_text().strip()
            except OSError:
                continue
            if vendor == AMD:
                paths[entry.name] = entry / "device"
    return paths


def _read_device(root: Path, name: str, device: Path, files: Files, unreadable: Reasons) -> None:
    where = f"sys/class/drm/{name}/device"
    for pattern in sources.FUNCTION:
        read_one(device / pattern, f"{where}/{pattern}", files, unreadable)
    if name.startswith("renderD"):
        return
    _read_bridges(root, device, files, unreadable)
    for pattern in sources.REMEMBERED:
        for path in sorted(device.glob(pattern)):
            read_one(path, f"{where}/{path.relative_to(device).as_posix()}", files, unreadable)
    status = files.get(f"{where}/power/runtime_status", b"active").strip()
    if status in (b"suspended", b"suspending", b"resuming"):
        unreadable[f"{where}/hwmon"] = ASLEEP
        return
    _read_with_timeout(device, where, files, unreadable)


def _read_with_timeout(device: Path, where: str, files: Files, unreadable: Reasons) -> None:
    """Query the card in a separate thread, which is abandoned if the card does not answer."""
    read: Files = {}
    refused: Reasons = {}
    result: list[bool] = []

    def ask() -> None:
        for pattern in sources.ASKED:
            for path in sorted(device.glob(pattern)):
                read_one(path, f"{where}/{path.relative_to(device).as_posix()}", read, refused)
        result.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    files |= dict(read)
    unreadable |= dict(refused)
    if not result:
        unreadable[f"{where}/hwmon"] = f"no reply within {PATIENCE_SECONDS:g} s: the GPU's SMU may hang"


def _read_bridges(root: Path, device: Path, files: Files, unreadable: Reasons) -> None:
    """Read the PCI path to the GPU under sys/devices: the narrowest link is rarely the GPU's own."""
    top = (root / "sys/devices").resolve()
    parent = device.resolve()
    while parent != top and top in parent.parents:
        if PCI.fullmatch(parent.name):
            where = f"sys/devices/{parent.relative_to(top).as_posix()}"
            for pattern in sources.FUNCTION:
                read_one(parent / pattern, f"{where}/{pattern}", files, unreadable)
        parent = parent.parent


def _query_machine(files: Files, unreadable: Reasons, devices: dict[str, Path], *, ioctls: bool) -> None:
    files["id.txt"] = live.read_identity().encode()
    live.read_kernel_log(files, unreadable)
    live.list_packages(files, unreadable)
    live.read_firmware(files, unreadable, devices)
    live.list_device_users(files, devices)
    live.find_container_marks(files)
    asleep = [name for name in devices if _is_suspended(files, name)]
    if asleep:
        unreadable["lspci.txt"] = ASLEEP
    else:
        live.run_lspci(files, unreadable)
    awake = [name for name in devices if name not in asleep]
    if ioctls and awake:
        from zinc_rt.kmd.linux import LinuxDriver

        live.query_ioctls(files, unreadable, LinuxDriver(), awake)


def _is_suspended(files: Files, name: str) -> bool:
    status = files.get(f"sys/class/drm/{name}/device/power/runtime_status", b"").strip()
    return status not in (b"", b"active", b"unsupported")
