"""The text files of a machine under /sys, /proc and /dev, in the kernel's formats.

Sources: kfd_topology.c (node_show, mem_show, kfd_cache_show, iolink_show), amdgpu_discovery.c
(ip_discovery).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from zinc_rt.sim.chips import MAX_WAVES_PER_SIMD, Chip, Ip
from zinc_rt.sim.driver.ioctl_call import MachineState
from zinc_rt.sim.driver.kfd_queues import compute_node_cwsr
from zinc_rt.sim.driver.process import Process
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.memory.buffers import Heap
from zinc_rt.sim.sensors import make_sensor_files

TOPOLOGY = "/sys/devices/virtual/kfd/kfd/topology"
TOPOLOGY_LINK = "/sys/class/kfd/kfd/topology"
HOST_CORES = 16
HOST_MEMORY_BYTES = 128 << 30
UNKNOWN_TARGET = 130000
_VENDOR = 0x1002
_CACHE_DATA = 0b1001  # HSA_CACHE_TYPE_DATA, for the compute units
_PCIE = 2

Text = str | Callable[[], str]


class ShownMachine(MachineState, Protocol):
    """The state that the files show, in addition to the ioctls'."""

    dmesg: list[str]
    processes: list[Process]


def format_properties(pairs: dict[str, int | str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in pairs.items())


def _make_cpu_node() -> dict[str, int | str]:
    zero = (
        "simd_id_base max_waves_per_simd lds_size_in_kb gds_size_in_kb num_gws wave_front_size array_count "
        "simd_arrays_per_engine cu_per_simd_array simd_per_cu max_slots_scratch_cu gfx_target_version vendor_id "
        "device_id location_id domain drm_render_minor hive_id num_sdma_engines num_sdma_xgmi_engines "
        "num_sdma_queues_per_engine num_cp_queues"
    )
    head: dict[str, int | str] = {
        "cpu_cores_count": HOST_CORES,
        "simd_count": 0,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": 1,
        "p2p_links_count": 0,
        "cpu_core_id_base": 0,
    }
    return {**head, **dict.fromkeys(zero.split(), 0), "max_engine_clk_ccompute": 4500}


def make_gpu_node(gpu: SimGpu) -> dict[str, int | str]:
    chip, linux = gpu.chip, gpu.linux
    unknown = gpu.injector.on("unknown-target")
    pairs: dict[str, int | str] = {
        "cpu_cores_count": 0,
        "simd_count": chip.simd_count,
        "mem_banks_count": 1,
        "caches_count": len(_make_caches(chip)),
        "io_links_count": 1,
        "p2p_links_count": 0,
        "cpu_core_id_base": 0,
        "simd_id_base": 2147487744 + 0x1000 * gpu.index,
        "max_waves_per_simd": MAX_WAVES_PER_SIMD,
        "lds_size_in_kb": chip.lds_kib,
        "gds_size_in_kb": 0,
        "num_gws": 0,
        "wave_front_size": 32,
        "array_count": chip.arrays,
        "simd_arrays_per_engine": chip.arrays_per_engine,
        "cu_per_simd_array": -(-chip.cus // chip.arrays),
        "simd_per_cu": chip.simds_per_cu,
        "max_slots_scratch_cu": chip.scratch_slots_per_cu,
        "gfx_target_version": UNKNOWN_TARGET if unknown else chip.target,
        "vendor_id": _VENDOR,
        "device_id": chip.device_id,
        "location_id": chip.location_id + 0x100 * gpu.index,
        "domain": 0,
        "drm_render_minor": gpu.render_minor,
        "hive_id": 0,
        "num_sdma_engines": chip.sdma_engines,
        "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": chip.sdma_queues_per_engine,
        "num_cp_queues": chip.cp_queues,
    }
    if linux.cwsr_in_sysfs:
        sizes = compute_node_cwsr(gpu)
        pairs |= {"cwsr_size": sizes.save_restore_bytes, "ctl_stack_size": sizes.control_stack_bytes}
    unique = chip.unique_id + gpu.index
    return pairs | {
        "max_engine_clk_fcompute": chip.sustained_mhz or chip.engine_mhz,
        "local_mem_size": 0,
        "fw_version": chip.firmware.mec,
        "capability": chip.capability,
        "debug_prop": 1495,
        "sdma_fw_version": chip.firmware.sdma & 0xFFFF,
        "unique_id": unique,
        "num_xcc": 1,
        "max_engine_clk_ccompute": 4500,
    }


def _make_caches(chip: Chip) -> list[dict[str, int | str]]:
    """Return one cache per level, enough for readers of sizes; the kernel has a row for every CU."""
    rows = [
        (1, chip.l1_kib, 128, _CACHE_DATA),
        (2, chip.l2_kib, 128, _CACHE_DATA),
        (3, chip.l3_kib, 64, _CACHE_DATA),
    ]
    return [
        {
            "processor_id_low": 2147487744,
            "level": level,
            "size": kib,
            "cache_line_size": line,
            "cache_lines_per_tag": 1,
            "association": 16,
            "latency": 1,
            "type": kind,
            "sibling_map": ",".join(["1"] * min(chip.cus, 64)),
        }
        for level, kib, line, kind in rows
        if kib
    ]


def _make_link(gpu: SimGpu, source: int, target: int) -> dict[str, int | str]:
    pairs: dict[str, int | str] = {
        "type": _PCIE,
        "version_major": 0,
        "version_minor": 0,
        "node_from": source,
        "node_to": target,
        "weight": 20,
        "min_latency": 0,
        "max_latency": 0,
        "min_bandwidth": 312,
        "max_bandwidth": 31504,
        "recommended_transfer_size": 0,
    }
    if gpu.linux.sdma_engine_mask_in_sysfs:
        pairs["recommended_sdma_engine_id_mask"] = 0
    return pairs | {"flags": 1}


def _make_bank(gpu: SimGpu) -> dict[str, int | str]:
    return {
        "heap_type": 1 if gpu.memory.large_bar else 2,  # HSA_MEM_HEAP_TYPE_FB_PUBLIC, _PRIVATE
        "size_in_bytes": gpu.memory.limit[gpu.kfd_vram_heap],
        "flags": 0,
        "width": gpu.chip.vram_width_bits,
        "mem_clk_max": gpu.chip.memory_mhz,
    }


def _make_discovery(root: str, ip: Ip) -> dict[str, Text]:
    files: dict[str, Text] = {}
    for instance in range(ip.instances):
        for name in (str(ip.hw_id), ip.name):  # the named folder is a link to the numbered one
            index = f"{root}/ip_discovery/die/0/{name}/{instance}"
            files |= {
                f"{index}/hw_id": f"{ip.hw_id}\n",
                f"{index}/num_instance": f"{instance}\n",
                f"{index}/major": f"{ip.version[0]}\n",
                f"{index}/minor": f"{ip.version[1]}\n",
                f"{index}/revision": f"{ip.version[2]}\n",
                f"{index}/harvest": "0x0\n",
                f"{index}/num_base_addresses": f"{len(ip.bases)}\n",
                f"{index}/base_addr": "".join(f"0x{base:08X}\n" for base in ip.bases),
            }
    return files


def _make_device(gpu: SimGpu, root: str) -> dict[str, Text]:
    """Return a PCI device's directory, as shown by /sys/class/drm/renderD128/device."""
    chip, memory = gpu.chip, gpu.memory
    files: dict[str, Text] = {
        f"{root}/vendor": f"0x{_VENDOR:04x}\n",
        f"{root}/device": f"0x{chip.device_id:04x}\n",
        f"{root}/revision": f"0x{chip.pci_rev:02x}\n",
        f"{root}/class": "0x030000\n",
        f"{root}/subsystem_vendor": "0x1002\n",
        f"{root}/subsystem_device": f"0x{chip.device_id:04x}\n",
        f"{root}/uevent": f"DRIVER=amdgpu\nPCI_ID=1002:{chip.device_id:04X}\nPCI_SLOT_NAME={chip.pci_address}\n",
        f"{root}/mem_info_vram_total": f"{memory.limit[Heap.VRAM]}\n",
        f"{root}/mem_info_vram_used": lambda: f"{memory.used[Heap.VRAM]}\n",
        f"{root}/mem_info_vis_vram_total": f"{memory.bar_bytes}\n",
        f"{root}/mem_info_gtt_total": f"{memory.limit[Heap.GTT]}\n",
        f"{root}/mem_info_gtt_used": lambda: f"{memory.used[Heap.GTT]}\n",
        f"{root}/gpu_busy_percent": "0\n",
        f"{root}/power_dpm_force_performance_level": "auto\n",
        f"{root}/unique_id": f"{chip.unique_id + gpu.index:016x}\n",
        f"{root}/product_name": f"{chip.name}\n",
        f"{root}/fw_version/mec_fw_version": f"0x{chip.firmware.mec:08x}\n",
        f"{root}/fw_version/me_fw_version": f"0x{chip.firmware.me:08x}\n",
        f"{root}/fw_version/pfp_fw_version": f"0x{chip.firmware.pfp:08x}\n",
        f"{root}/fw_version/sdma_fw_version": f"0x{chip.firmware.sdma:08x}\n",
        f"{root}/ip_discovery/die/0/num_ips": f"{sum(ip.instances for ip in chip.ips)}\n",
    }
    files |= {f"{root}/{name}": text for name, text in make_sensor_files(gpu).items()}
    for ip in chip.ips:
        files |= _make_discovery(root, ip)
    return files


def make_tree(machine: ShownMachine) -> dict[str, Text]:
    """Return every file by path. A callable is evaluated at each read."""
    linux, injector = machine.linux, machine.injector
    files: dict[str, Text] = {
        "/proc/version": f"Linux version {linux.release} (simulated) (gcc) #1 SMP PREEMPT_DYNAMIC\n",
        "/proc/sys/kernel/osrelease": f"{linux.release}\n",
        "/proc/sys/kernel/ostype": "Linux\n",
        "/dev/kmsg": lambda: "".join(f"{line}\n" for line in machine.dmesg),
        "/sys/module/amdgpu/initstate": "live\n",
        "/sys/module/amdgpu/refcnt": lambda: f"{sum(len(p.files) for p in machine.processes)}\n",
    }
    parameters = {
        "noretry": "-1",
        "gpu_recovery": "-1",
        "msi": "-1",
        "sched_policy": "0",
        "ppfeaturemask": "0xfff7bfff",
    }
    if linux.userq:
        parameters["user_queue"] = "-1" if injector.on("user-queue-off") else "1"
    parameters |= {"cwsr_enable": "1", "mes": "0", "vm_size": "-1", "hws_max_conc_proc": "8"}
    files |= {f"/sys/module/amdgpu/parameters/{name}": f"{value}\n" for name, value in parameters.items()}
    nodes: dict[str, Text] = {
        "generation_id": f"{1 + len(machine.gpus)}\n",
        "system_properties": format_properties({"platform_oem": 0, "platform_id": 0, "platform_rev": 0}),
        "nodes/0/gpu_id": "0\n",
        "nodes/0/name": "\n",
        "nodes/0/properties": format_properties(_make_cpu_node()),
        "nodes/0/mem_banks/0/properties": format_properties(
            {"heap_type": 0, "size_in_bytes": HOST_MEMORY_BYTES, "flags": 0, "width": 0, "mem_clk_max": 0}
        ),
    }
    for gpu in machine.gpus:
        nodes |= _make_gpu_files(gpu)
        link = format_properties(_make_link(gpu, 0, gpu.index + 1))
        nodes[f"nodes/0/io_links/{gpu.index}/properties"] = link
        for root in (f"/sys/class/drm/renderD{gpu.render_minor}/device", f"/sys/class/drm/card{gpu.index}/device"):
            files |= _make_device(gpu, root)
        files |= _make_device(gpu, f"/sys/bus/pci/devices/{gpu.chip.pci_address}")
        files[f"/sys/class/drm/renderD{gpu.render_minor}/dev"] = f"226:{gpu.render_minor}\n"
    for root in (TOPOLOGY, TOPOLOGY_LINK):
        files |= {f"{root}/{path}": text for path, text in nodes.items()}
    return files


def _make_gpu_files(gpu: SimGpu) -> dict[str, Text]:
    index = f"nodes/{gpu.index + 1}"

    def make_reader(text: str) -> Callable[[], str]:
        def show() -> str:
            if gpu.injector.on("hidden-gpu"):
                raise OSError(errno.EPERM, "the device cgroup hides this GPU")
            return text

        return show

    files: dict[str, Text] = {
        f"{index}/gpu_id": make_reader(f"{gpu.gpu_id}\n"),
        f"{index}/name": make_reader("ip discovery\n"),
        f"{index}/properties": make_reader(format_properties(make_gpu_node(gpu))),
        f"{index}/mem_banks/0/properties": format_properties(_make_bank(gpu)),
        f"{index}/mem_banks/0/used_memory": lambda: f"{gpu.memory.used[Heap.VRAM]}\n",
        f"{index}/io_links/0/properties": format_properties(_make_link(gpu, gpu.index + 1, 0)),
    }
    for number, cache in enumerate(_make_caches(gpu.chip)):
        files[f"{index}/caches/{number}/properties"] = format_properties(cache)
    return files


class FileTree:
    """The files for read_file and list_dir."""

    def __init__(self, machine: ShownMachine) -> None:
        self._files = make_tree(machine)
        self._devices = ["/dev/kfd", *(f"/dev/dri/renderD{gpu.render_minor}" for gpu in machine.gpus)]
        self._injector = machine.injector

    def list_devices(self) -> list[str]:
        return [path for path in self._devices if path != "/dev/kfd" or not self._injector.on("no-kfd-node")]

    def read(self, path: str) -> bytes:
        path = _normalise_path(path)
        text = self._files.get(path)
        if text is None:
            if self._list_below(path):
                raise OSError(errno.EISDIR, path)
            raise OSError(errno.ENOENT, path)
        return (text if isinstance(text, str) else text()).encode()

    def is_file(self, path: str) -> bool:
        return _normalise_path(path) in self._files

    def is_folder(self, path: str) -> bool:
        return bool(self._list_below(_normalise_path(path)))

    def names(self, path: str) -> list[str]:
        path = _normalise_path(path)
        names = self._list_below(path)
        if not names:
            raise OSError(errno.ENOTDIR if path in self._files else errno.ENOENT, path)
        return names

    def _list_below(self, folder: str) -> list[str]:
        start = folder.rstrip("/") + "/"
        paths = [*self._files, *self.list_devices()]
        return sorted({path[len(start) :].split("/")[0] for path in paths if path.startswith(start)})


def _normalise_path(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part and part != ".")
