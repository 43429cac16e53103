"""Machines as texts: healthy bases (doctor/examples.py) and what can be wrong with them (sicknesses/*.yaml)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.examples import BASES, BaseMachine, load_base
from zinc_rt.host.files import load_yaml

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class SickMachine:
    """One machine: a base with a sickness."""

    name: str
    files: Mapping[str, bytes]
    unreadable: Mapping[str, str]
    first: str
    also: tuple[str, ...]
    source: str

    @property
    def capture(self) -> MachineCapture:
        return MachineCapture(self.files, self.unreadable)


class EditError(AssertionError):
    """An edit that changes nothing, so the machine would not be faulty."""


def load_sicknesses() -> Iterator[dict[str, Any]]:
    for path in sorted((FOLDER / "sicknesses").glob("*.yaml")):
        yield from load_yaml(path.read_text(encoding="utf-8"))


@cache
def list_machines() -> tuple[SickMachine, ...]:
    return tuple(make_machine(sick, name) for sick in load_sicknesses() for name in base_names(sick))


GROUPS = {
    "all": BASES,
    "desktop": ["r9700-arch", "r9700-fedora", "r9700-ubuntu", "rx7900xtx", "rx9070xt-desktop"],
    "logged": [name for name in BASES if name != "container"],
    "single": ["r9700-arch", "r9700-dkms", "r9700-fedora", "r9700-ubuntu", "rx7900xtx", "rx9070xt-desktop", "vm"],
    "gfx12": ["r9700-arch", "r9700-dkms", "r9700-fedora", "r9700-ubuntu", "rx9070xt-desktop"],
    "debian": ["r9700-dkms", "r9700-ubuntu", "rx7900xtx", "rx9070xt-desktop", "two-r9700"],
}


def base_names(sick: dict[str, Any]) -> list[str]:
    named = sick["bases"]
    return GROUPS[named] if isinstance(named, str) else list(named)


def make_machine(sick: dict[str, Any], name: str) -> SickMachine:
    start = load_base(name)
    files, unreadable = dict(start.files), {}
    for edit in sick.get("edits", []):
        where = f"{sick['id']} on {name}: {edit}"
        if "unreadable" in edit:
            unreadable[fill_text(edit["unreadable"], start)] = edit["why"]
            continue
        before = dict(files)
        apply_edit(files, {key: fill_values(value, start) for key, value in edit.items()}, where)
        if files == before and not edit.get("maybe"):
            raise EditError(f"{where}: changes nothing")
    also = tuple(sick.get("also", ()))
    first = sick.get("first", "")
    return SickMachine(f"{sick['id']}@{name}", files, unreadable, first, also, sick.get("source", ""))


def apply_edit(files: dict[str, bytes], edit: dict[str, Any], sickness: str) -> None:
    """log: lines at the end. boot: lines instead of those from the GPU's start on. unstarted: no driver.
    set, append, remove, replace: of files. maybe: on some bases it is so already."""
    if "log" in edit:
        stamp = log_prefix(files)
        files["kernel.log"] = files["kernel.log"] + b"".join(
            f"{stamp(index)}{line}\n".encode() for index, line in enumerate(edit["log"].splitlines()) if line
        )
    elif "boot" in edit:
        lines = files["kernel.log"].decode().splitlines(keepends=True)
        cut = next(index for index, line in enumerate(lines) if "Fetched VBIOS" in line)
        stamp = log_prefix(files)
        files["kernel.log"] = "".join(lines[:cut]).encode() + b"".join(
            f"{stamp(index)}{line}\n".encode() for index, line in enumerate(edit["boot"].splitlines()) if line
        )
        remove_driver_lines(files, str(edit["address"]), keep=edit.get("keep", ""))
    elif "unstarted" in edit:
        remove_driver_lines(files, str(edit["unstarted"]), keep="")
    elif "remove" in edit:
        for path in [path for path in files if re.search(edit["remove"], path)]:
            del files[path]
    else:
        paths = [path for path in files if re.fullmatch(edit["file"], path)] or [edit["file"]]
        for path in paths:
            if "set" in edit:
                files[path] = edit["set"].encode()
            elif "append" in edit:
                files[path] = files.get(path, b"") + edit["append"].encode()
            else:
                old, new = edit["replace"]
                files[path] = re.sub(old, new, files.get(path, b"").decode(), flags=re.M).encode()


def remove_driver_lines(files: dict[str, bytes], address: str, keep: str) -> None:
    """amdgpu gave up: no DRM device, no KFD node, no driver in lspci."""
    slot = f"PCI_SLOT_NAME={address}".encode()
    folders = {
        path.removesuffix("uevent")
        for path, data in files.items()
        if path.endswith("device/uevent") and slot in data
    }
    bus, device = int(address.split(":")[1], 16), address
    location = f"location_id {bus << 8}".encode()
    nodes = {
        path.removesuffix("properties")
        for path, data in files.items()
        if "topology/nodes" in path and location in data
    }
    for path in list(files):
        if any(path.startswith(folder) for folder in (*folders, *nodes)) and not (keep and re.search(keep, path)):
            del files[path]
    cards = {folder.split("/")[3] for folder in folders}
    if "dev.txt" in files:
        kept = [
            line
            for line in files["dev.txt"].splitlines(keepends=True)
            if not any(f"/{card}".encode() in line for card in cards)
        ]
        files["dev.txt"] = b"".join(kept)
    if "lspci.txt" in files:
        short = device.removeprefix("0000:")
        parts = re.split(r"^(?=[0-9a-f]{2}:)", files["lspci.txt"].decode(), flags=re.M)
        changed = [
            re.sub(r"\tKernel driver in use: amdgpu\n", "", part) if part.startswith(short) else part
            for part in parts
        ]
        files["lspci.txt"] = "".join(changed).encode()


def log_prefix(files: dict[str, bytes]) -> Any:
    """Return the prefix of a line in the style of this log."""
    last = files["kernel.log"].decode().splitlines()[-1]
    if " kernel: " in last:
        return lambda at: f"Sep 12 10:{at // 60:02d}:{at % 60:02d} box kernel: "
    if re.match(r"\[\w{3} ", last):
        return lambda at: f"[Mon Sep  7 09:{at // 60:02d}:{at % 60:02d} 2026] "
    return lambda at: f"[{900 + at:12.6f}] "


def fill_values(value: Any, start: BaseMachine) -> Any:
    if isinstance(value, str):
        return fill_text(value, start)
    return [fill_text(item, start) for item in value] if isinstance(value, list) else value


def fill_text(text: str, start: BaseMachine) -> str:
    """{address}, {short} (without its domain), {card}, {render}, {root}, {dev} of the base."""
    short = start.variables["address"].removeprefix("0000:")
    for name, value in {**start.variables, "short": short}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
