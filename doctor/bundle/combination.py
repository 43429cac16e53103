"""The configuration of a machine that matters for GPUs: chip, kernel, module, firmware, parameters,
packages.

It is derived from a capture's files and from reports, so that machines can be compared, listed and
distinguished.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from zinc_rt.doctor.bundle.private import PLACEHOLDER
from zinc_rt.engine.checked import hash_card
from zinc_rt.kmd.topology import format_arch_name

PACKAGES = re.compile(
    r"(?:lib)?(?:mesa|drm|vulkan|hsa|rocm|hip|llvm)|linux-(?:firmware|image)|amdgpu|kernel|firmware"
)
SCALARS = ("chip", "pci_id", "kernel", "module", "os", "vbios")
MAPS = (("firmware", "firmware"), ("parameters", "parameter"), ("packages", "package"))  # attribute, kind
_AMD = "0x1002"
_FIRMWARE = re.compile(
    r"^(?P<name>.+?) feature version: \S+, (?:firmware|fw) version: (?P<version>\S+)", re.MULTILINE
)
_TARGET = re.compile(r"^gfx_target_version (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MachineCombination:
    """The configuration of a machine. Empty means unknown, never absent. `card`: a hash
    (zinc_rt.engine.checked)."""

    chip: str = ""
    pci_id: str = ""
    card: str = ""
    kernel: str = ""
    module: str = ""
    os: str = ""
    vbios: str = ""
    simulated: bool = False
    firmware: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def list_traits(combination: MachineCombination) -> dict[tuple[str, str], str]:
    """Return the complete configuration of a machine, by kind and name, without unknown values."""
    values = {("card", name): str(getattr(combination, name)) for name in SCALARS}
    for attribute, kind in MAPS:
        values |= {(kind, name): str(value) for name, value in getattr(combination, attribute).items()}
    return {key: PLACEHOLDER.sub("<…>", value) for key, value in values.items() if value}


def find_combination(
    files: Mapping[str, bytes], reports: Iterable[Mapping[str, Any]] = (), *, simulated: bool = False
) -> MachineCombination:
    """Return the configuration of the machine of these files. `files`: files of a capture before redaction,
    because the hash of the card needs its unique id.
    """
    device = _find_gpu(files)
    ids = [_read_text(files, f"{device}/{name}").removeprefix("0x") for name in ("vendor", "device", "revision")]
    unique = _read_text(files, f"{device}/unique_id") or _find_slot(files, device)
    devices = [report["device"] for report in reports if isinstance(report.get("device"), dict)]
    firmware = dict(_find_firmware(files, device))
    for item in devices:
        if isinstance(item.get("firmware"), dict):
            firmware = {
                **{name.lower(): format_version(version) for name, version in item["firmware"].items()},
                **firmware,
            }
    return MachineCombination(
        chip=_find_chip(files) or _first_value(devices, "arch"),
        pci_id=":".join(filter(None, ids)),
        card=hash_card(ids, unique) if device and unique else "",
        kernel=_find_kernel(files) or _first_value(devices, "kernel"),
        module=" ".join(
            filter(None, (_read_text(files, f"sys/module/amdgpu/{n}") for n in ("version", "srcversion")))
        ),
        os=_find_os(files),
        vbios=_read_text(files, f"{device}/vbios_version"),
        simulated=simulated,
        firmware=dict(sorted(firmware.items())),
        parameters=_find_parameters(files),
        packages=_find_packages(files),
    )


def _read_text(files: Mapping[str, bytes], path: str) -> str:
    return files.get(path, b"").decode(errors="replace").strip()


def _find_gpu(files: Mapping[str, bytes]) -> str:
    """Return the folder of the AMD GPU with the most memory, which excludes the processor's own GPU."""
    candidates = []
    for path in files:
        match = re.fullmatch(r"(sys/class/drm/(?:card|renderD)\d+/device)/vendor", path)
        if match and _read_text(files, path) == _AMD:
            memory = _read_text(files, f"{match[1]}/mem_info_vram_total")
            candidates.append((-int(memory) if memory.isdecimal() else 0, match[1]))
    return min(candidates)[1] if candidates else ""


def _find_slot(files: Mapping[str, bytes], device: str) -> str:
    match = re.search(r"PCI_SLOT_NAME=(\S+)", _read_text(files, f"{device}/uevent"))
    return match[1] if match else ""


def _find_chip(files: Mapping[str, bytes]) -> str:
    """Return the newest target in KFD's topology, because an APU's own GPU is rarely the one of interest."""
    targets = [
        int(match[1])
        for path in files
        if re.search(r"topology/nodes/\d+/properties$", path)
        and (match := _TARGET.search(_read_text(files, path)))
    ]
    best = max(targets, default=0)
    return format_arch_name((best // 10000, best // 100 % 100, best % 100)) if best else ""


def _find_kernel(files: Mapping[str, bytes]) -> str:
    release = _read_text(files, "proc/sys/kernel/osrelease")
    match = re.match(r"Linux version (\S+)", _read_text(files, "proc/version"))
    return release or (match[1] if match else "")


def _find_os(files: Mapping[str, bytes]) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', _read_text(files, "etc/os-release"), re.MULTILINE)
    return match[1] if match else ""


def _find_firmware(files: Mapping[str, bytes], device: str) -> Iterable[tuple[str, str]]:
    for match in _FIRMWARE.finditer(_read_text(files, "firmware.txt")):
        yield match["name"].strip().lower().replace(" ", "_"), format_version(match["version"])
    start = f"{device}/fw_version/"
    for path in files:
        if device and path.startswith(start):
            yield path.removeprefix(start).removesuffix("_fw_version"), format_version(_read_text(files, path))


def format_version(value: object) -> str:
    """Return versions as hexadecimal numbers, in any notation."""
    text = str(value).rstrip(",")
    try:
        return f"{int(text, 0):#x}"
    except ValueError:
        return text


def _find_parameters(files: Mapping[str, bytes]) -> dict[str, str]:
    start = "sys/module/amdgpu/parameters/"
    parameters = {path.removeprefix(start): _read_text(files, path) for path in files if path.startswith(start)}
    for word in _read_text(files, "proc/cmdline").split():
        name, _, value = word.partition("=")
        if re.match(r"(?:amdgpu|iommu|amd_iommu|intel_iommu|pci|pcie_|nomodeset|mitigations)", name):
            parameters[f"boot: {name}"] = value or "set"
    return dict(sorted(parameters.items()))


def _find_packages(files: Mapping[str, bytes]) -> dict[str, str]:
    rows = (line.split() for line in _read_text(files, "packages.txt").splitlines())
    return dict(sorted((row[0], row[1]) for row in rows if len(row) >= 2 and PACKAGES.match(row[0])))


def _first_value(devices: Iterable[Mapping[str, Any]], name: str) -> str:
    return next((str(device[name]) for device in devices if device.get(name)), "")
