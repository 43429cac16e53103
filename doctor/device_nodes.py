"""Write dev.txt, the device nodes of the GPU as `ls -ln` prints them."""

from __future__ import annotations

import os
import stat as modes
from pathlib import Path

from zinc_rt.doctor.reading import Files, Reasons
from zinc_rt.kmd.driver import Driver


def list_host_nodes(root: Path, files: Files, unreadable: Reasons) -> None:
    """List the nodes below `root`. + after the mode marks an ACL."""
    lines = []
    paths: list[Path] = [
        root / "dev/kfd",
        *sorted((root / "dev/dri").glob("card*")),
        *sorted((root / "dev/dri").glob("renderD*")),
    ]
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        plus = "+" if _has_acl(path) else ""
        major, minor = os.major(stat.st_rdev), os.minor(stat.st_rdev)
        name = "/" + path.relative_to(root).as_posix()
        lines.append(
            f"{modes.filemode(stat.st_mode)}{plus} 1 {stat.st_uid} {stat.st_gid} {major}, {minor} "
            f"{name}{_find_group(stat.st_gid)}"
        )
        if not os.access(path, os.R_OK | os.W_OK):
            unreadable[name.strip("/")] = "Permission denied"
    if lines or (root / "sys/class/kfd").exists() or any((root / "sys/class/drm").glob("card*")):
        files["dev.txt"] = ("\n".join(lines) + "\n").encode()


def list_driver_nodes(driver: Driver, files: Files, unreadable: Reasons) -> None:
    """List the nodes that a simulated driver opens."""
    render = sorted({path.split("/")[3] for path in files if path.startswith("sys/class/drm/renderD")})
    nodes = [
        ("/dev/kfd", "235, 0"),
        *((f"/dev/dri/{name}", f"226, {name.removeprefix('renderD')}") for name in render),
    ]
    lines = []
    for path, numbers in nodes:
        try:
            driver.close(driver.open(path, os.O_RDWR))
        except FileNotFoundError:
            continue
        except OSError as error:
            unreadable[path.lstrip("/")] = error.strerror or str(error)
        lines.append(f"crw-rw-rw- 1 0 0 {numbers} {path}\n")
    files["dev.txt"] = "".join(lines).encode()


def _has_acl(path: Path) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False


def _find_group(gid: int) -> str:
    import grp

    try:
        return f"  # group {grp.getgrgid(gid).gr_name}"
    except KeyError:
        return ""
