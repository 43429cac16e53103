"""Firmware versions of a capture: from sysfs, which everybody reads, from debugfs, and from ioctls."""

from __future__ import annotations

import json
import re

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.machine import InspectedGpu
from zinc_rt.doctor.reading import integer
from zinc_rt.kmd.render_node import FIRMWARE_VERSION_MASK

_FW_FILES = {
    "pfp": "PFP",
    "me": "ME",
    "mec": "MEC",
    "mes": "MES",
    "mes_kiq": "MES_KIQ",
    "smc": "SMC",
    "rlc": "RLC",
    "sos": "SOS",
    "sdma": "SDMA",
    "imu": "IMU",
    "asd": "ASD",
}
_FW_LINE = re.compile(
    r"^\s*([A-Z][\w ]*?)(?: feature version: \d+,| program: \d+,| feature \d+,|[: ])?\s*"
    r"(?:firmware version|fw|version):?\s*(0x[0-9a-fA-F]+|\d+)"
)


def of_ioctls(capture: MachineCapture, gpu: InspectedGpu) -> tuple[dict[str, tuple[bool, str]], dict[str, int]]:
    """What ioctl.json has of this GPU: what each tier answered, firmware versions. Empty where it is of another
    shape."""
    try:
        of_gpu = json.loads(capture.text("ioctl.json") or "{}")["gpus"][gpu.render]
        answers = {tier: (bool(each["usable"]), str(each["why"])) for tier, each in of_gpu.items()}
        firmware = of_gpu.get("t2", {}).get("facts", {}).get("firmware", {})
        return answers, {str(name): int(value) for name, value in firmware.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, {}


def of_sysfs(capture: MachineCapture, folder: str) -> dict[str, int]:
    """The versions in `fw_version/mes_fw_version` and its like, which everybody may read."""
    found = {}
    for file, name in _FW_FILES.items():
        value = integer(capture.line(f"{folder}/fw_version/{file}_fw_version"))
        if value:
            found[name] = value & FIRMWARE_VERSION_MASK.get(name, 0xFFFFFFFF)
    return found


def of_debugfs(capture: MachineCapture) -> dict[str, dict[str, int]]:
    """The versions in amdgpu_firmware_info by card (`# card1` before each), "" where only one is told of."""
    texts = [capture.text("firmware.txt") or ""]
    for name in sorted(capture.files):
        matched = re.fullmatch(r"sys/kernel/debug/dri/(\d+)/amdgpu_firmware_info", name)
        if matched:
            texts.append(f"# card{matched[1]}\n{capture.text(name)}")
    found: dict[str, dict[str, int]] = {}
    for text in texts:
        of = ""
        for line in text.splitlines():
            if line.startswith("#"):
                of = (line.strip("# ").split() or [""])[0].lower()
                continue
            matched = _FW_LINE.match(line)
            value = integer(matched[2]) if matched else None
            if matched and value:
                name = matched[1].strip().replace(" ", "_").upper()
                value &= FIRMWARE_VERSION_MASK.get(name, 0xFFFFFFFF)
                found.setdefault(of, {})[name] = value
    return found
