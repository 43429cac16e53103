"""A scripted KFD and amdgpu: enough to show call order, exact bytes, and that nothing is kept after a failure.

It keeps the kernel's books (handles, mappings, queues, events) and complains where the caller's are wrong. It runs
nothing: no packets, no page tables. `fail` makes the n-th call of a run fail, `refuse` every call of one kind.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Callable, Sequence
from typing import Any

from zinc_rt.kmd.driver import ANONYMOUS, PROT_NONE, Mapping
from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes

GPU_ID = 0x51D2
RENDER = "/dev/dri/renderD128"
NODES = "/sys/devices/virtual/kfd/kfd/topology/nodes"
PARAMETER = "/sys/module/amdgpu/parameters/user_queue"
IOCTLS = {ioctl.request: ioctl for module in (drm, amdgpu, kfd) for ioctl in module.IOCTLS.values()}

R9700 = {  # as Linux 6.17 describes it; the save-area sizes are not there before 6.19
    "cpu_cores_count": 0,
    "simd_count": 128,
    "mem_banks_count": 1,
    "simd_per_cu": 2,
    "array_count": 8,
    "simd_arrays_per_engine": 2,
    "cu_per_simd_array": 8,
    "max_waves_per_simd": 16,
    "lds_size_in_kb": 64,
    "wave_front_size": 32,
    "gfx_target_version": 120001,
    "vendor_id": 0x1002,
    "device_id": 0x7551,
    "location_id": 768,
    "domain": 0,
    "drm_render_minor": 128,
    "num_xcc": 1,
    "num_cp_queues": 8,
    "max_slots_scratch_cu": 32,
    "local_mem_size": 0,
}


def read_host(address: int, size_bytes: int) -> bytes:
    return ctypes.string_at(address, size_bytes)


def write_host(address: int, content: bytes) -> None:
    ctypes.memmove(address, content, len(content))


def properties(values: dict[str, int]) -> bytes:
    return "".join(f"{name} {value}\n" for name, value in values.items()).encode()


class FakeDriver:
    simulated = True

    def __init__(self, **changes: int) -> None:
        node = {**R9700, **changes}
        self.files: dict[str, bytes | OSError] = {
            f"{NODES}/0/gpu_id": b"0\n",
            f"{NODES}/1/gpu_id": f"{GPU_ID}\n".encode(),
            f"{NODES}/1/name": b"ip discovery\n",
            f"{NODES}/1/properties": properties(node),
            f"{NODES}/1/mem_banks/0/properties": properties({"heap_type": 1, "size_in_bytes": 32 << 30}),
            PARAMETER: b"1\n",
            "/sys/class/drm/card0/dev": b"226:0\n",
            "/sys/class/drm/renderD128/device/vendor": b"0x1002\n",
            "/sys/class/drm/renderD128/device/device": b"0x7551\n",
            "/sys/class/drm/renderD128/device/uevent": b"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
            "/sys/class/drm/renderD129/device/vendor": b"0x8086\n",
        }
        self.nodes = {"/dev/kfd", RENDER}
        self.device = {"virtual_address_offset": 0x200000, "virtual_address_max": 1 << 47, "userq_ip_mask": 0b111}
        self.compute = {"ip_discovery_version": 12 << 16 | 1, "userq_num_slots": 4}
        self.firmware = {"ver": 4000}
        self.memory = {"vram.total_heap_size": 32 << 30, "cpu_accessible_vram.total_heap_size": 32 << 30}
        self.vram_full = False
        self.version = (1, 17)
        self.calls: list[tuple[str, Any]] = []  # everything asked, in order
        self.fail: tuple[int, int] | None = None  # (n-th call, errno)
        self.refuse: dict[str, int | Callable[[StructBytes], int]] = {}
        self.fds: dict[int, str] = {}
        self.mappings: dict[Mapping, mmap.mmap | None] = {}
        self.allocs: dict[int, StructBytes] = {}  # KFD handle → request
        self.mapped: set[int] = set()
        self.bos: dict[int, StructBytes] = {}
        self.vas: dict[int, StructBytes] = {}
        self.queues: dict[int, StructBytes] = {}
        self.events: set[int] = set()
        self.syncobjs: set[int] = set()
        self.page = 0
        self.next = 0
        self.fire: dict[int, dict[str, int]] = {}  # event id → fields of its EVENT_DATA
        self._next_aside = 0x7F0000000000

    # --- the seam ---

    def open(self, path: str, flags: int) -> int:
        self._record_call("open", (path, flags))
        if path not in self.nodes:
            raise OSError(errno.ENOENT, "No such file or directory", path)
        self.fds[100 + self._next_id()] = path
        return 100 + self.next

    def close(self, fd: int) -> None:
        del self.fds[fd]
        self.calls.append(("close", (fd,)))

    def read_file(self, path: str) -> bytes:
        file = self.files.get(path, FileNotFoundError(errno.ENOENT, "No such file or directory", path))
        if isinstance(file, OSError):
            raise file
        return file

    def list_dir(self, path: str) -> list[str]:
        inside = {file[len(path) + 1 :].split("/")[0] for file in self.files if file.startswith(f"{path}/")}
        if not inside:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return sorted(inside)

    def poll(self, fds: Sequence[int], timeout_seconds: float) -> list[int]:
        return []

    def mmap(self, fd: int, size_bytes: int, offset: int, prot: int, fixed_va: int | None = None) -> Mapping:
        self._record_call("mmap", (fd, size_bytes, offset, prot, fixed_va))
        assert size_bytes % 4096 == 0
        if fd == ANONYMOUS and prot == PROT_NONE:
            mapping = Mapping(self._next_aside + 4096, size_bytes, prot)  # 4 KiB off any larger alignment
            self._next_aside += size_bytes + (4 << 20)
            self.mappings[mapping] = None
            return mapping
        assert fd == ANONYMOUS or fd in self.fds
        if fixed_va is not None:
            assert any(
                item.set_aside
                and item.address <= fixed_va <= fixed_va + size_bytes <= item.address + item.size_bytes
                for item in self.mappings
            )
        memory = mmap.mmap(-1, size_bytes)
        mapping = Mapping(_address(memory), size_bytes, prot)  # elsewhere than asked for, on purpose
        self.mappings[mapping] = memory
        return mapping

    def munmap(self, mapping: Mapping) -> None:
        self.calls.append(("munmap", (mapping,)))
        mapping.release()
        del self.mappings[mapping]

    def ioctl(self, fd: int, request: int, arg: bytearray) -> None:
        command = IOCTLS[request]
        assert len(arg) == command.struct.size_bytes
        path = self.fds[fd]
        assert path == ("/dev/kfd" if command.type_ == "K" else RENDER)
        record = command.struct.read(arg)
        self._record_call(command.name, command.struct.read(arg))
        refused = self.refuse.get(command.name, 0)
        number = refused(record) if callable(refused) else refused
        if number:
            raise OSError(number, "refused")
        name = command.name.removeprefix("AMDKFD_IOC_").removeprefix("DRM_IOCTL_").lower()
        getattr(self, f"_{name}")(record)
        if "r" in command.direction:
            arg[:] = record.raw

    # --- books ---

    def remaining_resources(self) -> dict[str, object]:
        """Return the resources that the kernel would still hold for this process. The event page is its own to
        keep.
        """
        kinds: dict[str, object] = {
            "fds": self.fds,
            "mappings": self.mappings,
            "allocs": {handle: item for handle, item in self.allocs.items() if handle != self.page},
            "mapped": self.mapped,
            "bos": self.bos,
            "vas": self.vas,
            "queues": self.queues,
            "events": self.events,
            "syncobjs": self.syncobjs,
        }
        return {kind: held for kind, held in kinds.items() if held}

    def call_names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def sent_records(self, command: Ioctl) -> list[StructBytes]:
        return [record for name, record in self.calls if name == command.name and isinstance(record, StructBytes)]

    def _record_call(self, name: str, arguments: object) -> None:
        self.calls.append((name, arguments))
        if self.fail is not None and self.fail[0] == len(self.calls) - 1:
            raise OSError(self.fail[1], "planted")

    def _next_id(self) -> int:
        self.next += 1
        return self.next

    def check_or_raise(self, condition: bool, number: int) -> None:
        if not condition:
            raise OSError(number, "the fake kernel refuses")

    # --- KFD ---

    def _get_version(self, r: StructBytes) -> None:
        r["major_version"], r["minor_version"] = self.version

    def _acquire_vm(self, r: StructBytes) -> None:
        self.check_or_raise(self.fds.get(r["drm_fd"]) == RENDER and r["gpu_id"] == GPU_ID, errno.EINVAL)

    def _get_process_apertures_new(self, r: StructBytes) -> None:
        if r["num_of_nodes"]:
            windows = kfd.PROCESS_DEVICE_APERTURES.new(
                lds_base=1 << 48,
                lds_limit=(1 << 48) + (1 << 32) - 1,
                scratch_base=2 << 48,
                scratch_limit=(2 << 48) + (1 << 32) - 1,
                gpuvm_base=0x10000,
                gpuvm_limit=(1 << 47) - 1,
                gpu_id=GPU_ID,
            )
            write_host(r["kfd_process_device_apertures_ptr"], bytes(windows.raw))
        r["num_of_nodes"] = 1

    def _get_clock_counters(self, r: StructBytes) -> None:
        r["gpu_clock_counter"], r["system_clock_freq"] = self._next_id(), 10**9

    def _available_memory(self, r: StructBytes) -> None:
        r["available"] = 31 << 30

    def _alloc_memory_of_gpu(self, r: StructBytes) -> None:
        self.check_or_raise(r["size"] > 0 and r["gpu_id"] == GPU_ID and not r["va_addr"] % 4096, errno.EINVAL)
        r["handle"] = GPU_ID << 32 | self._next_id()
        self.allocs[r["handle"]] = r
        r["mmap_offset"] = self.next << 20

    def _free_memory_of_gpu(self, r: StructBytes) -> None:
        self.check_or_raise(r["handle"] in self.allocs, errno.EINVAL)
        self.check_or_raise(r["handle"] not in self.mapped, errno.EBUSY)
        self.check_or_raise(r["handle"] != self.page, errno.EPERM)
        del self.allocs[r["handle"]]

    def _map_memory_to_gpu(self, r: StructBytes) -> None:
        self.check_or_raise(r["handle"] in self.allocs, errno.ENOMEM)
        ids = read_host(r["device_ids_array_ptr"], 4 * r["n_devices"])
        self.check_or_raise(ids == GPU_ID.to_bytes(4, "little") and r["n_success"] == 0, errno.EINVAL)
        self.mapped.add(r["handle"])
        r["n_success"] = 1

    def _unmap_memory_from_gpu(self, r: StructBytes) -> None:
        self.check_or_raise(r["handle"] in self.mapped, errno.EINVAL)
        used = {q[f] for q in self.queues.values() if "ring_size" in q.struct.fields for f in _QUEUE_ADDRESSES}
        self.check_or_raise(self.allocs[r["handle"]]["va_addr"] not in used, errno.EBUSY)
        self.mapped.remove(r["handle"])
        r["n_success"] = 1

    def _is_exact_mapping(self, va: int, size_bytes: int) -> bool:
        return any(
            item["va_addr"] == va and item["size"] == size_bytes and handle in self.mapped
            for handle, item in self.allocs.items()
        )

    def _create_queue(self, r: StructBytes) -> None:
        fine = self._is_exact_mapping(r["ring_base_address"], r["ring_size"])
        fine &= self._is_exact_mapping(r["write_pointer_address"], 4096) and self._is_exact_mapping(
            r["read_pointer_address"], 4096
        )
        fine &= r["eop_buffer_size"] == 4096 and self._is_exact_mapping(r["eop_buffer_address"], 4096)
        self.check_or_raise(fine and r["queue_type"] == 0, errno.EINVAL)
        r["queue_id"] = self._next_id()
        r["doorbell_offset"] = 3 << 62 | (GPU_ID & 0xFFFF) << 46 | 0x1000 + 8 * self.next
        self.queues[r["queue_id"]] = r

    def _destroy_queue(self, r: StructBytes) -> None:
        self.check_or_raise(r["queue_id"] in self.queues, errno.EINVAL)
        del self.queues[r["queue_id"]]

    def _update_queue(self, r: StructBytes) -> None:
        self.check_or_raise(r["queue_id"] in self.queues, errno.EFAULT)

    def _set_cu_mask(self, r: StructBytes) -> None:
        self.cu_mask = read_host(r["cu_mask_ptr"], r["num_cu_mask"] // 8)

    def _create_event(self, r: StructBytes) -> None:
        if r["event_page_offset"]:
            self.check_or_raise(r["event_page_offset"] in self.mapped and not self.page, errno.EINVAL)
            self.page = r["event_page_offset"]
        r["event_id"] = self._next_id() if r["event_type"] == 0 else 0x40000000 + self._next_id()
        r["event_slot_index"] = r["event_trigger_data"] = r["event_id"] & 0xFFF
        self.events.add(r["event_id"])

    def _destroy_event(self, r: StructBytes) -> None:
        self.check_or_raise(r["event_id"] in self.events, errno.EINVAL)
        self.events.remove(r["event_id"])

    def _set_event(self, r: StructBytes) -> None:
        self.fire[r["event_id"]] = {"last_event_age": 2}

    def _reset_event(self, r: StructBytes) -> None:
        self.fire.pop(r["event_id"], None)

    def _wait_events(self, r: StructBytes) -> None:
        size = kfd.EVENT_DATA.size_bytes
        fired = 0
        for index in range(r["num_events"]):
            position = r["events_ptr"] + index * size
            data = kfd.EVENT_DATA.read(read_host(position, size))
            self.check_or_raise(data["event_id"] in self.events, errno.EINVAL)
            for name, value in self.fire.get(data["event_id"], {}).items():
                data[name] = value
                fired += 1
            write_host(position, bytes(data.raw))
        r["wait_result"] = kfd.KFD_IOC_WAIT_RESULT_COMPLETE if fired else kfd.KFD_IOC_WAIT_RESULT_TIMEOUT

    # --- DRM ---

    def _version(self, r: StructBytes) -> None:
        write_host(r["name"], b"amdgpu")
        r["name_len"], r["version_major"], r["version_minor"] = 6, 3, 64

    def _amdgpu_info(self, r: StructBytes) -> None:
        answers: dict[int, StructBytes] = {
            amdgpu.AMDGPU_INFO_DEV_INFO: amdgpu.INFO_DEVICE.new(**self.device),
            amdgpu.AMDGPU_INFO_HW_IP_INFO: amdgpu.INFO_HW_IP.new(**self.compute),
            amdgpu.AMDGPU_INFO_FW_VERSION: amdgpu.INFO_FIRMWARE.new(**self.firmware),
            amdgpu.AMDGPU_INFO_MEMORY: amdgpu.INFO_MEMORY.new(**self.memory),
            amdgpu.AMDGPU_INFO_GPUVM_FAULT: amdgpu.INFO_GPUVM_FAULT.new(addr=0xBAD000, status=0x301),
        }
        self.check_or_raise(r["query"] in answers, errno.EINVAL)
        answer = bytes(answers[r["query"]].raw)
        if r["query"] == amdgpu.AMDGPU_INFO_HW_IP_INFO:
            answer = answer[: self.compute_bytes]
        write_host(r["return_pointer"], answer[: r["return_size"]])

    compute_bytes = 40  # 32 before 6.17: the slots are not written

    def _amdgpu_gem_create(self, r: StructBytes) -> None:
        asked = amdgpu.GEM_CREATE.read(r.raw)
        r["handle"] = self._next_id()
        self.bos[r["handle"]] = asked

    def _amdgpu_gem_op(self, r: StructBytes) -> None:
        self.check_or_raise(r["handle"] in self.bos, errno.ENOENT)
        domains = self.bos[r["handle"]]["domains"]
        if self.vram_full and domains == amdgpu.AMDGPU_GEM_DOMAIN_VRAM:
            domains |= amdgpu.AMDGPU_GEM_DOMAIN_GTT
        write_host(r["value"], bytes(amdgpu.GEM_CREATE_INFO.new(domains=domains).raw))

    def _gem_close(self, r: StructBytes) -> None:
        del self.bos[r["handle"]]

    def _amdgpu_gem_mmap(self, r: StructBytes) -> None:
        self.check_or_raise(r["handle"] in self.bos, errno.ENOENT)
        r["addr_ptr"] = r["handle"] << 20

    def _amdgpu_gem_va(self, r: StructBytes) -> None:
        self.check_or_raise(
            r["handle"] in self.bos and r["vm_timeline_syncobj_out"] in self.syncobjs, errno.ENOENT
        )
        if r["operation"] == amdgpu.AMDGPU_VA_OP_MAP:
            self.check_or_raise(
                not any(self._overlaps_mapping(r, item) for item in self.vas.values()), errno.EINVAL
            )
            self.vas[r["va_address"]] = r
        else:
            del self.vas[r["va_address"]]

    @staticmethod
    def _overlaps_mapping(a: StructBytes, b: StructBytes) -> bool:
        start, end = a["va_address"], a["va_address"] + a["map_size"]
        return start < b["va_address"] + b["map_size"] and b["va_address"] < end

    def _syncobj_create(self, r: StructBytes) -> None:
        r["handle"] = self._next_id()
        self.syncobjs.add(r["handle"])

    def _syncobj_destroy(self, r: StructBytes) -> None:
        self.syncobjs.remove(r["handle"])

    def _syncobj_timeline_wait(self, r: StructBytes) -> None:
        (self.waited_point,) = (int.from_bytes(read_host(r["points"], 8), "little"),)

    def _syncobj_wait(self, r: StructBytes) -> None:
        pass

    def _amdgpu_userq(self, r: StructBytes) -> None:
        if r["op"] == amdgpu.AMDGPU_USERQ_OP_FREE:
            others = {name: value for name, value in r.as_dict().items() if value}
            self.check_or_raise(set(others) <= {"op", "queue_id", "new_queue_id"}, errno.EINVAL)
            del self.queues[r["queue_id"]]
            return
        (self.mqd,) = (read_host(r["mqd"], r["mqd_size"]),)
        wanted = {r["queue_va"], r["rptr_va"], r["wptr_va"], int.from_bytes(self.mqd[:8], "little")}
        self.check_or_raise(wanted <= set(self.vas) and r["doorbell_handle"] in self.bos, errno.EINVAL)
        asked = amdgpu.USERQ.read(r.raw)
        r["new_queue_id"] = self._next_id()
        self.queues[r["new_queue_id"]] = asked

    def _amdgpu_userq_signal(self, r: StructBytes) -> None:
        self.check_or_raise(r["queue_id"] in self.queues, errno.ENOENT)

    def _amdgpu_userq_wait(self, r: StructBytes) -> None:
        if r["num_fences"]:
            pair = amdgpu.USERQ_FENCE_INFO.new(va=0x1000, value=7)
            write_host(r["out_fences"], bytes(pair.raw))
            r["num_fences"] = 1
        else:
            r["num_fences"] = 2  # the kernel counts first, and finds doubles later


_QUEUE_ADDRESSES = (
    "ring_base_address",
    "write_pointer_address",
    "read_pointer_address",
    "eop_buffer_address",
    "ctx_save_restore_address",
)


def _address(memory: mmap.mmap) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
