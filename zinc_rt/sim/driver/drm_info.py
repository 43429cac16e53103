"""DRM_IOCTL_AMDGPU_INFO: one row per query. Source: amdgpu_kms.c, amdgpu_info_ioctl."""

from __future__ import annotations

import errno
from collections.abc import Callable

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.driver.files import DrmFile
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.driver.userq_ioctls import EOP_BYTES, is_enabled, is_ip_usable
from zinc_rt.sim.memory.buffers import Heap
from zinc_rt.sim.memory.vm import VA_HOLE_END, VA_HOLE_START, VA_TOP_RESERVED
from zinc_rt.sim.tables import amdgpu

GB_ADDR_CONFIG = (
    0x263E  # dword offset: GC's first segment 0x1260 + 0x13DE (gc_11_0_0_offset.h, gc_12_0_0_offset.h)
)
VA_OFFSET = 0x200000  # AMDGPU_VA_RESERVED_BOTTOM, rounded as INFO reports it
USERQ_SLOTS_PER_PIPE = 2  # MES' HQD mask with user_queue=1: 0xC of four a pipe
_IPS = (amdgpu.AMDGPU_HW_IP_GFX, amdgpu.AMDGPU_HW_IP_COMPUTE, amdgpu.AMDGPU_HW_IP_DMA)
_OLD_MEC, _OLD_MES = 2900, 100  # firmware-old: below every minimum

Answer = Callable[[IoctlCall, DrmFile], bytes]


def _pack_u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _pack_u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _answer_hw_ip(call: IoctlCall, file: DrmFile) -> bytes:
    ip, gpu = call.arg["hw_ip_type"], file.gpu
    if ip not in _IPS or call.arg["hw_ip_instance"]:
        raise OSError(errno.EINVAL, "unknown IP")
    name = "SDMA0" if ip == amdgpu.AMDGPU_HW_IP_DMA else "GC"
    major, minor, revision = next(item.version for item in gpu.chip.ips if item.name == name)
    record = amdgpu.INFO_HW_IP.new(
        hw_ip_version_major=major,
        hw_ip_version_minor=minor,
        ib_start_alignment=256,
        ib_size_alignment=4,
        available_rings={amdgpu.AMDGPU_HW_IP_GFX: 1, amdgpu.AMDGPU_HW_IP_COMPUTE: 0xF}.get(ip, 3),
        ip_discovery_version=major << 16 | minor << 8 | revision,
    )
    if gpu.linux.userq_slots and is_enabled(gpu):
        slots = USERQ_SLOTS_PER_PIPE * gpu.chip.mec_pipes
        record["userq_num_slots"] = slots if ip == amdgpu.AMDGPU_HW_IP_COMPUTE else 1
    if not gpu.linux.userq_slots:
        return bytes(record.raw)[:32]  # the struct ended here in older kernels
    return bytes(record.raw)


def _answer_firmware(call: IoctlCall, file: DrmFile) -> bytes:
    firmware, old = file.gpu.chip.firmware, file.gpu.injector.on("firmware-old")
    versions = {
        amdgpu.AMDGPU_INFO_FW_GFX_ME: firmware.me,
        amdgpu.AMDGPU_INFO_FW_GFX_PFP: firmware.pfp,
        amdgpu.AMDGPU_INFO_FW_GFX_MEC: _OLD_MEC if old else firmware.mec,
        amdgpu.AMDGPU_INFO_FW_SDMA: firmware.sdma,
        amdgpu.AMDGPU_INFO_FW_MES_KIQ: firmware.mes_kiq,
        amdgpu.AMDGPU_INFO_FW_MES: _OLD_MES if old else firmware.mes,
    }
    if call.arg["fw_type"] not in versions or call.arg["fw_ip_instance"]:
        raise OSError(errno.EINVAL, "unknown firmware")
    return bytes(amdgpu.INFO_FIRMWARE.new(ver=versions[call.arg["fw_type"]]).raw)


def _answer_device(call: IoctlCall, file: DrmFile) -> bytes:
    chip = file.gpu.chip
    per_array = chip.cus // chip.arrays
    bitmap = [0] * 16
    for engine in range(min(4, chip.shader_engines)):
        for array in range(chip.arrays_per_engine):
            bitmap[engine * 4 + array] = (1 << per_array) - 1
    mask = sum(1 << ip for ip in _IPS if is_ip_usable(file.gpu, ip))
    record = amdgpu.INFO_DEVICE.new(
        device_id=chip.device_id,
        chip_rev=chip.pci_rev & 0xF,
        pci_rev=chip.pci_rev,
        external_rev=0x50 if chip.major >= 12 else 0x01,
        family=chip.family,
        num_shader_engines=chip.shader_engines,
        num_shader_arrays_per_engine=chip.arrays_per_engine,
        gpu_counter_freq=100_000,
        max_engine_clock=chip.engine_mhz * 1000,
        max_memory_clock=chip.memory_mhz * 1000,
        cu_active_number=chip.cus,
        cu_bitmap=tuple(bitmap),
        num_rb_pipes=chip.arrays * 4,
        num_hw_gfx_contexts=8,
        pcie_gen=5,
        ids_flags=1 if chip.integrated else 0,
        virtual_address_offset=VA_OFFSET,
        virtual_address_max=VA_HOLE_START,
        virtual_address_alignment=PAGE_BYTES,
        pte_fragment_size=PAGE_BYTES << 9,
        gart_page_size=PAGE_BYTES,
        vram_type=10,  # GDDR6
        vram_bit_width=chip.vram_width_bits,
        wave_front_size=32,
        num_shader_visible_vgprs=1536,
        num_cu_per_sh=per_array,
        num_tcc_blocks=chip.vram_width_bits // 16,
        pcie_num_lanes=16,
        high_va_offset=VA_HOLE_END,
        high_va_max=VA_TOP_RESERVED,
        min_engine_clock=500_000,
        min_memory_clock=96_000,
        tcp_cache_size=chip.l1_kib,
        num_sqc_per_wgp=1,
        sqc_data_cache_size=16,
        sqc_inst_cache_size=32,
        gl1c_cache_size=256,
        gl2c_cache_size=chip.l2_kib,
        mall_size=chip.l3_kib * 1024,
        userq_ip_mask=mask if file.gpu.linux.userq else 0,
    )
    return bytes(record.raw)


def _answer_memory(call: IoctlCall, file: DrmFile) -> bytes:
    memory = file.gpu.memory
    vram, gtt = memory.limit[Heap.VRAM], memory.limit[Heap.GTT]
    visible = min(memory.bar_bytes, vram)
    used, gtt_used = memory.used[Heap.VRAM], memory.used[Heap.GTT]
    values = {
        "vram.total_heap_size": vram,
        "vram.usable_heap_size": vram - (64 << 20),
        "vram.heap_usage": used,
        "vram.max_allocation": vram * 3 // 4,
        "cpu_accessible_vram.total_heap_size": visible,
        "cpu_accessible_vram.usable_heap_size": visible - (16 << 20),
        "cpu_accessible_vram.heap_usage": memory.count_visible_used,
        "cpu_accessible_vram.max_allocation": visible * 3 // 4,
        "gtt.total_heap_size": gtt,
        "gtt.usable_heap_size": gtt,
        "gtt.heap_usage": gtt_used,
        "gtt.max_allocation": gtt * 3 // 4,
    }
    record = amdgpu.INFO_MEMORY.new()
    for name, value in values.items():
        record[name] = value
    return bytes(record.raw)


def _answer_vram_gtt(call: IoctlCall, file: DrmFile) -> bytes:
    limit = file.gpu.memory.limit
    return _pack_u64(limit[Heap.VRAM]) + _pack_u64(file.gpu.memory.bar_bytes) + _pack_u64(limit[Heap.GTT])


def _answer_fault(call: IoctlCall, file: DrmFile) -> bytes:
    address, status = file.vm.last_fault
    return bytes(amdgpu.INFO_GPUVM_FAULT.new(addr=address, status=status, vmhub=0).raw)


def _answer_userq_areas(call: IoctlCall, file: DrmFile) -> bytes:
    ip = call.arg["hw_ip_type"]
    if ip == amdgpu.AMDGPU_HW_IP_GFX and file.gpu.linux.userq:
        sizes = {"shadow_size": 0x11000, "shadow_alignment": 0x1000, "csa_size": 0x20000, "csa_alignment": 0x1000}
        return bytes(amdgpu.INFO_UQ_METADATA.new(**sizes).raw)
    if ip == amdgpu.AMDGPU_HW_IP_COMPUTE and file.gpu.linux.userq_compute_metadata:
        return bytes(amdgpu.INFO_UQ_METADATA.new(eop_size=EOP_BYTES, eop_alignment=PAGE_BYTES).raw)
    raise OSError(errno.EINVAL, "no metadata for this IP")


def _answer_count(call: IoctlCall, file: DrmFile) -> bytes:
    if call.arg["hw_ip_type"] not in _IPS:
        raise OSError(errno.EINVAL, "unknown IP")
    return _pack_u32(file.gpu.chip.sdma_engines if call.arg["hw_ip_type"] == amdgpu.AMDGPU_HW_IP_DMA else 1)


def _answer_register(call: IoctlCall, file: DrmFile) -> bytes:
    """Return a register that drivers may read (soc21_read_register, soc24_read_register); libdrm reads it
    when it opens a GPU."""
    if (call.arg["dword_offset"], call.arg["count"]) != (GB_ADDR_CONFIG, 1):
        raise OSError(errno.EFAULT, "GB_ADDR_CONFIG is the only readable register that is simulated")
    return _pack_u32(file.gpu.chip.gb_addr_config)


QUERIES: dict[int, Answer] = {
    amdgpu.AMDGPU_INFO_ACCEL_WORKING: lambda call, file: _pack_u32(1),
    amdgpu.AMDGPU_INFO_HW_IP_INFO: _answer_hw_ip,
    amdgpu.AMDGPU_INFO_HW_IP_COUNT: _answer_count,
    amdgpu.AMDGPU_INFO_TIMESTAMP: lambda call, file: _pack_u64(file.gpu.gpu_counter()),
    amdgpu.AMDGPU_INFO_FW_VERSION: _answer_firmware,
    amdgpu.AMDGPU_INFO_VRAM_USAGE: lambda call, file: _pack_u64(file.gpu.memory.used[Heap.VRAM]),
    amdgpu.AMDGPU_INFO_GTT_USAGE: lambda call, file: _pack_u64(file.gpu.memory.used[Heap.GTT]),
    amdgpu.AMDGPU_INFO_VRAM_GTT: _answer_vram_gtt,
    amdgpu.AMDGPU_INFO_READ_MMR_REG: _answer_register,
    amdgpu.AMDGPU_INFO_DEV_INFO: _answer_device,
    amdgpu.AMDGPU_INFO_VIS_VRAM_USAGE: lambda call, file: _pack_u64(file.gpu.memory.count_visible_used),
    amdgpu.AMDGPU_INFO_NUM_EVICTIONS: lambda call, file: _pack_u64(file.gpu.memory.evictions),
    amdgpu.AMDGPU_INFO_MEMORY: _answer_memory,
    amdgpu.AMDGPU_INFO_VRAM_LOST_COUNTER: lambda call, file: _pack_u32(file.gpu.vram_lost),
    amdgpu.AMDGPU_INFO_GPUVM_FAULT: _answer_fault,
    amdgpu.AMDGPU_INFO_UQ_FW_AREAS: _answer_userq_areas,
}


def info(call: IoctlCall) -> None:
    file = call.drm
    file.gpu.check_alive()
    size = call.arg["return_size"]
    if not size or not call.arg["return_pointer"]:
        raise OSError(errno.EINVAL, "no return buffer")
    answer = QUERIES.get(call.arg["query"])
    if answer is None or (call.arg["query"] == amdgpu.AMDGPU_INFO_UQ_FW_AREAS and not file.gpu.linux.userq):
        raise OSError(errno.EINVAL, f"unknown query 0x{call.arg['query']:x}")
    call.put(call.arg["return_pointer"], answer(call, file)[:size])
