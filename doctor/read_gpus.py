"""Read the GPUs of a capture, by DRM device, KFD node or lspci, whichever is present."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from zinc_rt.doctor import lspci
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.chips import CHIPS, find_by_title
from zinc_rt.doctor.machine import InspectedGpu, Link
from zinc_rt.doctor.reading import parse_integer
from zinc_rt.host.errors import ZincError
from zinc_rt.kmd.render_node import FIRMWARE_VERSION_MASK
from zinc_rt.kmd.topology import TopologyNode

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
    r"^\s*([A-Z][\w ]*?)(?: feature version: \d+,| program: \d+,| feature \d+,|[: ])*\s*"
    r"(?:firmware version|fw|version):?\s*(0x[0-9a-fA-F]+|\d+)"
)


def read_ioctl_memory(
    capture: MachineCapture, gpu: InspectedGpu
) -> tuple[dict[str, tuple[bool, str]], dict[str, int]]:
    """Return the data of this GPU in ioctl.json: the replies to each tier, and firmware versions. Empty if
    it has another format."""
    try:
        of_gpu = json.loads(capture.text("ioctl.json") or "{}")["gpus"][gpu.render]
        answers = {tier: (bool(item["usable"]), str(item["why"])) for tier, item in of_gpu.items()}
        firmware = of_gpu.get("t2", {}).get("facts", {}).get("firmware", {})
        return answers, {str(name): int(value) for name, value in firmware.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, {}


def read_sysfs_firmware(capture: MachineCapture, folder: str) -> dict[str, int]:
    """Return the versions in `fw_version/mes_fw_version` and similar files, which every user may read."""
    by_slot = {}
    for file, name in _FW_FILES.items():
        value = parse_integer(capture.line(f"{folder}/fw_version/{file}_fw_version"))
        if value:
            by_slot[name] = value & FIRMWARE_VERSION_MASK.get(name, 0xFFFFFFFF)
    return by_slot


def read_debugfs_firmware(capture: MachineCapture) -> dict[str, dict[str, int]]:
    """Return the versions in amdgpu_firmware_info by card (`# card1` precedes each), "" if there is only
    one."""
    texts = [capture.text("firmware.txt") or ""]
    for name in sorted(capture.files):
        matched = re.fullmatch(r"sys/kernel/debug/dri/(\d+)/amdgpu_firmware_info", name)
        if matched:
            texts.append(f"# card{matched[1]}\n{capture.text(name)}")
    by_file: dict[str, dict[str, int]] = {}
    for text in texts:
        of = ""
        for line in text.splitlines():
            if line.startswith("#"):
                of = (line.strip("# ").split() or [""])[0].lower()
                continue
            matched = _FW_LINE.match(line)
            value = parse_integer(matched[2]) if matched else None
            if matched and value:
                name = matched[1].strip().replace(" ", "_").upper()
                value &= FIRMWARE_VERSION_MASK.get(name, 0xFFFFFFFF)
                by_file.setdefault(of, {})[name] = value
    return by_file


AMD = 0x1002
IMPOSSIBLE_CELSIUS = 255
_DRM = "sys/class/drm"
_GRAPHICS_CLASS = (0x0300, 0x0302, 0x0380, 0x1200)


def read_gpus(capture: MachineCapture, nodes: tuple[TopologyNode, ...]) -> tuple[InspectedGpu, ...]:
    listed = lspci.parse_lspci(capture.text("lspci.txt") or "")
    firmware = read_debugfs_firmware(capture)
    by_slot: dict[str, InspectedGpu] = {}
    for card, render, folder in _find_drm_devices(capture):
        gpu = _read_drm_gpu(capture, folder, card, render)
        by_slot[gpu.address or folder] = gpu
    for address, entry in listed.items():
        if entry.amd_graphics:
            bound = capture.line(f"sys/bus/pci/devices/{address}/uevent") or ""
            driver = entry.driver or ("amdgpu" if "DRIVER=amdgpu" in bound else None)
            known = (
                by_slot.get(address)
                or _find_gpu_without_address(by_slot, entry)
                or InspectedGpu(address, driver=driver)
            )
            by_slot = {key: item for key, item in by_slot.items() if item is not known}
            by_slot[address] = _add_lspci(known, entry, lspci.find_bridge_chain(listed, address), capture)
    for address, gpu in _find_bare_functions(capture).items():
        by_slot.setdefault(address, gpu)
    for node in nodes:
        _add_node(by_slot, node)
    if not by_slot:
        by_slot = _find_logged_gpus(capture)
    complete = [_complete_gpu(capture, gpu, firmware) for gpu in by_slot.values()]
    return tuple(sorted(complete, key=lambda gpu: (gpu.integrated, gpu.address, gpu.card)))


def _find_drm_devices(capture: MachineCapture) -> list[tuple[str, str, str]]:
    """Return (card, render node, folder of the device) of AMD's devices."""
    folders: dict[str, str] = {}
    for name in capture.files:
        matched = re.match(rf"({_DRM}/(card\d+|renderD\d+)/device)/", name)
        if matched:
            folders[matched[2]] = matched[1]
    amd = {
        name: folder
        for name, folder in folders.items()
        if parse_integer(capture.line(f"{folder}/vendor")) in (AMD, None)
        and ("DRIVER=amdgpu" in (capture.text(f"{folder}/uevent") or "") or capture.line(f"{folder}/vendor"))
    }
    address = {name: _read_slot(capture, folder) for name, folder in amd.items()}
    cards = sorted(name for name in amd if name.startswith("card"))
    renders = sorted(name for name in amd if name.startswith("renderD"))
    rows = []
    for card in cards:
        same = [name for name in renders if address[name] and address[name] == address[card]]
        render = same[0] if same else renders[0] if len(renders) == len(cards) == 1 else ""
        rows.append((card, render, amd[card]))
    taken = {render for _, render, _ in rows}
    return rows + [("", name, amd[name]) for name in renders if name not in taken and not cards]


def _read_slot(capture: MachineCapture, folder: str) -> str:
    matched = re.search(
        r"PCI_SLOT_NAME=([0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\b",
        capture.text(f"{folder}/uevent") or "",
    )
    return matched[1].lower() if matched else ""


def _read_drm_gpu(capture: MachineCapture, folder: str, card: str, render: str) -> InspectedGpu:
    def read_line(name: str) -> str | None:
        return capture.line(f"{folder}/{name}")

    uevent = capture.text(f"{folder}/uevent")
    driver = re.search(r"^DRIVER=(\S+)", uevent or "", re.M)
    address = _read_slot(capture, folder)
    vendor = parse_integer(read_line("vendor"))
    caps = [f"{folder}/{name}" for name in _find_hwmon_files(capture, folder, "power1_cap")]
    usual = [f"{folder}/{name}" for name in _find_hwmon_files(capture, folder, "power1_cap_default")]
    fans = _find_hwmon_files(capture, folder, "fan1_input")
    temperatures = _read_temperatures(capture, folder)
    return InspectedGpu(
        address,
        card,
        render,
        parse_integer(read_line("device")),
        driver[1] if driver else None,
        read_line("product_name") or "",
        vram_bytes=parse_integer(read_line("mem_info_vram_total")),
        visible_bytes=parse_integer(read_line("mem_info_vis_vram_total")),
        vram_used_bytes=parse_integer(read_line("mem_info_vram_used")),
        busy_percent=parse_integer(read_line("gpu_busy_percent")),
        bar_bytes=_parse_bar(read_line("resource")),
        links=_read_links(capture, folder, address),
        runtime_status=read_line("power/runtime_status"),
        runtime_control=read_line("power/control"),
        power_state=read_line("power_state"),
        performance_level=read_line("power_dpm_force_performance_level"),
        power_cap_watts=_read_micro_units(capture, caps),
        power_cap_default_watts=_read_micro_units(capture, usual),
        fan_rpm=parse_integer(read_line(fans[0])) if fans else None,
        temperatures=temperatures,
        ras=_read_ras_counts(capture, folder),
        vbios=read_line("vbios_version"),
        firmware=read_sysfs_firmware(capture, folder),
        displays=_find_displays(capture, card),
        gone=vendor == 0xFFFF or read_line("config") == "ff" or _reads_as_ones(temperatures),
    )


def _parse_bar(resource: str | None) -> int | None:
    """Return the size of BAR 0, from start and end in the first line of `resource`."""
    words = (resource or "").split()
    try:
        start, end = int(words[0], 16), int(words[1], 16)
    except (IndexError, ValueError):
        return None
    return end - start + 1 if end > start else 0


def _find_hwmon_files(capture: MachineCapture, folder: str, name: str) -> list[str]:
    pattern = re.compile(rf"{re.escape(folder)}/(hwmon/hwmon\d+/{name})")
    return [matched[1] for path in capture.files if (matched := pattern.fullmatch(path))]


def _read_micro_units(capture: MachineCapture, paths: list[str]) -> float | None:
    value = parse_integer(capture.line(paths[0])) if paths else None
    return None if value is None else value / 1e6


def _read_temperatures(capture: MachineCapture, folder: str) -> tuple[tuple[str, float, float | None], ...]:
    temperatures = []
    for name in _find_hwmon_files(capture, folder, r"temp\d+_input"):
        where = f"{folder}/{name.removesuffix('_input')}"
        now, maximum = parse_integer(capture.line(f"{where}_input")), parse_integer(capture.line(f"{where}_crit"))
        if now is not None:
            label = capture.line(f"{where}_label") or where.rpartition("/")[2]
            temperatures.append((label, now / 1000, maximum / 1000 if maximum else None))
    return tuple(temperatures)


def _reads_as_ones(temperatures: tuple[tuple[str, float, float | None], ...]) -> bool:
    """Return whether a sensor returns more than any GPU survives: registers of a lost GPU read as all ones."""
    return any(now >= IMPOSSIBLE_CELSIUS for _, now, _ in temperatures)


def _read_ras_counts(capture: MachineCapture, folder: str) -> tuple[tuple[str, int, int], ...]:
    """Read the blocks of `ras/*_err_count`, two lines each: `ue: N` and `ce: N`."""
    counters = []
    for path in capture.files:
        matched = re.fullmatch(rf"{re.escape(folder)}/ras/(\w+)_err_count", path)
        if matched:
            counts = dict(re.findall(r"\b(ue|ce): *(\d+)", capture.text(path) or ""))
            counters.append((matched[1], int(counts.get("ue", 0)), int(counts.get("ce", 0))))
    return tuple(sorted(counters))


def _find_displays(capture: MachineCapture, card: str) -> tuple[str, ...]:
    pattern = re.compile(rf"{_DRM}/({re.escape(card)}-[\w-]+)/status")
    return tuple(
        sorted(
            matched[1]
            for path in capture.files
            if card and (matched := pattern.fullmatch(path)) and capture.line(path) == "connected"
        )
    )


def _read_link(capture: MachineCapture, folder: str, address: str) -> Link:
    def read_number(name: str) -> float | None:
        matched = re.match(r"\d+(?:\.\d+)?", capture.line(f"{folder}/{name}") or "")
        return float(matched[0]) if matched else None

    def read_lanes(name: str) -> int | None:
        value = parse_integer(capture.line(f"{folder}/{name}"))
        return value if value and value < 64 else None  # 255: no link there

    return Link(
        address,
        read_number("current_link_speed"),
        read_lanes("current_link_width"),
        read_number("max_link_speed"),
        read_lanes("max_link_width"),
    )


def _read_links(capture: MachineCapture, folder: str, address: str) -> tuple[Link, ...]:
    """Return the device's own link, then those of the bridges above it, if the capture contains sys/devices."""
    links = [_read_link(capture, folder, address)]
    path = next(
        (name for name in capture.files if address and re.search(rf"^sys/devices/.*/{re.escape(address)}/", name)),
        "",
    )
    parts = path.split(f"/{address}/")[0].split("/") if path else []
    for index in range(len(parts), 3, -1):
        if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", parts[index - 1]):
            links.append(_read_link(capture, "/".join(parts[:index]), parts[index - 1]))
    return tuple(links)


def _add_lspci(
    gpu: InspectedGpu, entry: lspci.PciFunction, above: list[lspci.PciFunction], capture: MachineCapture
) -> InspectedGpu:
    changes: dict[str, object] = {"address": entry.address, "gone": gpu.gone or entry.gone}
    if gpu.device_id is None:
        changes["device_id"] = entry.device or find_by_title(entry.title)
    if gpu.driver is None:
        changes["driver"] = entry.driver or ("" if _lists_drivers(capture) else None)
    if gpu.bar_bytes is None and 0 in entry.regions:
        changes["bar_bytes"] = entry.regions[0] or 0
    if not any(link.width for link in gpu.links[1:]):
        own = gpu.links[:1] if gpu.links and gpu.links[0].width else (_read_lspci_link(entry, capture),)
        changes["links"] = (*own, *(_read_lspci_link(bridge, capture) for bridge in above))
    return replace(gpu, **changes)  # type: ignore[arg-type]


def _lists_drivers(capture: MachineCapture) -> bool:
    """Return whether lspci printed drivers; without -k or -v it prints one line for each function."""
    return bool(re.search(r"^\s+\S", capture.text("lspci.txt") or "", re.M)) or "proc/modules" in capture.files


def _read_lspci_link(entry: lspci.PciFunction, capture: MachineCapture) -> Link:
    """Return the link from lspci, or from sysfs if lspci ran without root, which hides the capabilities."""
    if entry.link is None:
        return _read_link(capture, f"sys/bus/pci/devices/{entry.address}", entry.address)
    now, maximum = entry.link, entry.link_most or (None, None)
    return Link(entry.address, now[0], now[1], maximum[0], maximum[1])


def _find_gpu_without_address(by_slot: dict[str, InspectedGpu], entry: lspci.PciFunction) -> InspectedGpu | None:
    """Find the GPU without an address that this lspci entry describes: by id, or the only one."""
    lost = [gpu for gpu in by_slot.values() if not gpu.address]
    same = [gpu for gpu in lost if gpu.device_id == (entry.device or find_by_title(entry.title))]
    return same[0] if same else lost[0] if len(lost) == 1 and entry.device is None else None


def _find_logged_gpus(capture: MachineCapture) -> dict[str, InspectedGpu]:
    """Return the GPUs that only the kernel log mentions: a driver that failed leaves no device."""
    text = capture.text("kernel.log") or ""
    gpus = {}
    for address in dict.fromkeys(
        re.findall(r"(?:amdgpu|pci) ([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): ", text)
    ):
        known = re.search(rf"{address}: \[1002:([0-9a-f]{{4}})\] type 00 class 0x03", text)
        if known or re.search(rf"amdgpu {address}: ", text):
            gpus[address] = InspectedGpu(address, device_id=int(known[1], 16) if known else None)
    for address in re.findall(r"radeon ([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): VRAM: ", text):
        gpus.setdefault(address, InspectedGpu(address, driver="radeon"))
    started = re.search(r"initializing kernel modesetting \([^)]* 0x1002:0x([0-9A-Fa-f]{4})", text)
    if started and len(gpus) < 2:
        gpu = next(iter(gpus.values()), InspectedGpu(""))
        gpus = {gpu.address: replace(gpu, device_id=gpu.device_id or int(started[1], 16))}
    return gpus


def _find_bare_functions(capture: MachineCapture) -> dict[str, InspectedGpu]:
    """Return AMD's graphics functions under sys/bus/pci/devices that no other source names; they may have no
    driver.
    """
    gpus = {}
    for name in capture.files:
        matched = re.fullmatch(r"sys/bus/pci/devices/([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/vendor", name)
        if not matched or parse_integer(capture.line(name)) != AMD:
            continue
        folder = name.rpartition("/")[0]
        if (parse_integer(capture.line(f"{folder}/class")) or 0) >> 8 in _GRAPHICS_CLASS:
            gpu = _read_drm_gpu(capture, folder, "", "")
            gpus[matched[1]] = replace(gpu, address=matched[1], driver=gpu.driver or "")
    return gpus


def _add_node(by_slot: dict[str, InspectedGpu], node: TopologyNode) -> None:
    """Add KFD's data, matched by render minor, else by PCI location, else if there is only one GPU."""
    render = f"renderD{node.properties.get('drm_render_minor', 0)}"
    location = node.properties.get("location_id")
    address = ""
    if location is not None:
        domain = node.properties.get("domain", 0)
        address = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
    device = node.properties.get("device_id")
    free = [key for key, gpu in by_slot.items() if gpu.node is None]
    for same in (
        [key for key in free if by_slot[key].render == render],
        [key for key in free if by_slot[key].address == address and address],
        [key for key in free if by_slot[key].device_id == device and device],
        free if len(by_slot) == 1 and device is None else [],
    ):
        if same:
            by_slot[same[0]] = replace(by_slot[same[0]], node=node)
            return
    by_slot[address or render] = InspectedGpu(address, render=render, device_id=device, driver="amdgpu", node=node)


def _complete_gpu(capture: MachineCapture, gpu: InspectedGpu, firmware: dict[str, dict[str, int]]) -> InspectedGpu:
    arch, vram, visible = "", gpu.vram_bytes, gpu.visible_bytes
    try:
        arch = gpu.node.arch if gpu.node else ""
        if gpu.node and gpu.node.vram_bytes:
            vram = vram or gpu.node.vram_bytes
            visible = visible or gpu.node.heaps.get(1) or (0 if gpu.node.small_bar else gpu.node.vram_bytes)
    except ZincError:
        pass  # a topology without that property: the device id says as much
    if not arch and gpu.device_id in CHIPS:
        arch = CHIPS[gpu.device_id].arch
    versions = firmware.get(gpu.card) or firmware.get(gpu.address) or firmware.get("") or {}
    answers, message = read_ioctl_memory(capture, gpu)
    return replace(
        gpu,
        arch=arch,
        vram_bytes=vram,
        visible_bytes=visible,
        firmware={**message, **versions, **gpu.firmware},
        answers=answers,
    )
