"""One recorded submission, run without anything but the amdgpu driver.

`python3 FILE` opens /dev/kfd or the render node, allocates the recorded buffers at their recorded GPU addresses,
loads their content by the command processor's own copies, submits the recorded packets, and compares the outputs.

Needs Python 3.10 on an x86 host. Exit code: 0 the outputs are the expected ones, 1 they differ (or the simulated
device found something), 2 the submission does not end, or the device cannot be used.
"""

from __future__ import annotations

import argparse
import array
import base64
import ctypes
import errno
import fcntl
import json
import mmap
import os
import socket
import struct
import sys
import time
import zlib
from pathlib import Path
from typing import Any, ClassVar

CASE: dict[str, Any] = {}  # filled in by zinc-rt replay --emit-repro

PAGE = 4096
RING_BYTES = 1 << 16
OWN_VA = 0x200_0000_0000  # of what the recorded packets do not name: ring, pointers, staging
TOPOLOGY = "/sys/devices/virtual/kfd/kfd/topology/nodes"


CALLS = {  # for messages: request -> its name in kfd_ioctl.h, amdgpu_drm.h, drm.h
    0x40084B15: "AMDKFD_IOC_ACQUIRE_VM",
    0xC0204B08: "AMDKFD_IOC_CREATE_EVENT",
    0xC0284B16: "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU",
    0xC0184B18: "AMDKFD_IOC_MAP_MEMORY_TO_GPU",
    0xC0604B02: "AMDKFD_IOC_CREATE_QUEUE",
    0xC0184B0C: "AMDKFD_IOC_WAIT_EVENTS",
    0xC0206440: "DRM_IOCTL_AMDGPU_GEM_CREATE",
    0xC0086441: "DRM_IOCTL_AMDGPU_GEM_MMAP",
    0x40206445: "DRM_IOCTL_AMDGPU_INFO",
    0x40406448: "DRM_IOCTL_AMDGPU_GEM_VA",
    0xC0486456: "DRM_IOCTL_AMDGPU_USERQ",
    0xC00864BF: "DRM_IOCTL_SYNCOBJ_CREATE",
    0xC03064CA: "DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT",
}


class Unusable(Exception):
    """Exit code 2."""


# --- the system: this machine's, or a simulated device behind a socket ---------------------------------------


class Linux:
    simulated = False

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def ioctl(self, fd: int, request: int, body: bytes, *arrays: tuple[int, bytearray]) -> bytes:
        """The struct as it comes back. `arrays`: where a pointer stands in it, and what it points to."""
        raw = bytearray(body)
        rooms = [(ctypes.c_char * len(content)).from_buffer(content) for _, content in arrays]
        for (at, _), room in zip(arrays, rooms, strict=True):
            struct.pack_into("<Q", raw, at, ctypes.addressof(room))
        while True:
            try:
                fcntl.ioctl(fd, request, raw, True)
                return bytes(raw)
            except InterruptedError:
                continue
            except OSError as error:
                raise OSError(error.errno, f"{CALLS[request]}: {error.strerror}") from error

    def map(self, fd: int, size_bytes: int, offset: int) -> memoryview:
        offset -= 1 << 64 if offset >> 63 else 0  # off_t is signed, KFD uses the highest bits
        address = self.libc.mmap(None, size_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, offset)
        if address == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return memoryview((ctypes.c_ubyte * size_bytes).from_address(address)).cast("B")

    def read(self, path: str) -> str:
        return Path(path).read_text()

    def names(self, path: str) -> list[str]:
        return [each.name for each in Path(path).iterdir()]

    def announce(self, rows: list[list[Any]]) -> None:
        """Hardware has no such channel."""

    def findings(self) -> list[str]:
        return []


class Simulated:
    """ZINC-RT's simulated device, `zinc-rt sim --socket PATH --stay`; the protocol is in its
    docs/simulated-device.md."""

    simulated = True

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.ask({"version": 1})

    def ask(self, header: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes, list[int]]:
        text = json.dumps(header).encode()
        self.socket.sendall(struct.pack("<IQB", len(text), len(body), 0) + text + body)
        head, rights, _, _ = self.socket.recvmsg(13, socket.CMSG_SPACE(32))
        if len(head) < 13:
            head += self.exactly(13 - len(head))
        text_bytes, body_bytes, _ = struct.unpack("<IQB", head)
        answer, content = json.loads(self.exactly(text_bytes)), self.exactly(body_bytes)
        fds = array.array("i")
        for _, _, data in rights:
            fds.frombytes(data)
        if answer.get("errno"):
            raise OSError(answer["errno"], answer.get("message") or os.strerror(answer["errno"]))
        return answer, content, list(fds)

    def exactly(self, size_bytes: int) -> bytes:
        content = bytearray()
        while len(content) < size_bytes:
            piece = self.socket.recv(size_bytes - len(content))
            if not piece:
                raise OSError(errno.ENODEV, "the simulated device has ended")
            content += piece
        return bytes(content)

    def open(self, path: str) -> int:
        return int(self.ask({"op": "open", "path": path, "flags": os.O_RDWR})[0]["fd"])

    def ioctl(self, fd: int, request: int, body: bytes, *arrays: tuple[int, bytearray]) -> bytes:
        raw, rows = bytearray(body), []
        for number, (at, content) in enumerate(arrays):
            address = (number + 1) << 20  # of nothing: the bytes travel with the request
            struct.pack_into("<Q", raw, at, address)
            rows.append([address, len(content), True])
        header = {"op": "ioctl", "fd": fd, "request": request, "size": len(raw), "arrays": rows}
        try:
            answer, came, _ = self.ask(header, bytes(raw) + b"".join(bytes(each) for _, each in arrays))
        except OSError as error:
            raise OSError(error.errno, f"{CALLS[request]}: {error.strerror}") from error
        at = len(raw)
        for address, size_bytes in answer["written"]:
            index, offset = (address >> 20) - 1, address & 0xFFFFF
            arrays[index][1][offset : offset + size_bytes] = came[at : at + size_bytes]
            at += size_bytes
        return came[: len(raw)]

    def map(self, fd: int, size_bytes: int, offset: int) -> memoryview:
        answer, _, fds = self.ask({"op": "mmap", "fd": fd, "size": size_bytes, "offset": offset})
        try:
            return memoryview(mmap.mmap(fds[0], size_bytes, offset=answer["offset"]))
        finally:
            os.close(fds[0])

    def read(self, path: str) -> str:
        return self.ask({"op": "read_file", "path": path})[1].decode()

    def names(self, path: str) -> list[str]:
        return list(self.ask({"op": "list_dir", "path": path})[0]["names"])

    def announce(self, rows: list[list[Any]]) -> None:
        self.ask({"op": "announce", "rows": rows})

    def findings(self) -> list[str]:
        return [f"{each['rule']}: {each['sentence']}" for each in self.ask({"op": "findings"})[0]["findings"]]


System = Linux | Simulated


# --- the two ways to a compute queue -------------------------------------------------------------------------


def nodes_of(system: System) -> list[dict[str, int]]:
    """GPUs as KFD lists them."""
    found = []
    for name in sorted(system.names(TOPOLOGY), key=int):
        gpu_id = system.read(f"{TOPOLOGY}/{name}/gpu_id").strip()
        if gpu_id in ("", "0"):
            continue
        lines = system.read(f"{TOPOLOGY}/{name}/properties").splitlines()
        found.append(
            {"gpu_id": int(gpu_id), **{key: int(value) for key, value in (each.split() for each in lines)}}
        )
    return found


class RecordedGpu:
    """Memory and one queue. `ring`, `wptr`, `doorbell` are views of the host, set by `queue`."""

    ring: memoryview
    wptr: memoryview
    doorbell: memoryview

    def __init__(self, system: System, node: dict[str, int]) -> None:
        self.system, self.node = system, node
        self.render = system.open(f"/dev/dri/renderD{node['drm_render_minor']}")
        self.next_va = OWN_VA
        self.put_dw = 0

    def own(self, name: str, size_bytes: int, where: str = "gtt") -> tuple[int, memoryview | None]:
        """A buffer that the recorded packets do not know: its address, the host's view."""
        va, self.next_va = self.next_va, self.next_va + (size_bytes + 0x1F_FFFF & ~0x1F_FFFF)
        return va, self.alloc(name, va, size_bytes, where)

    def place(self, region: dict[str, Any]) -> memoryview | None:
        """A recorded buffer. VRAM that the host maps may be refused, where the BAR is small: host memory then."""
        place = region["name"], region["va"], region["size"]
        try:
            return self.alloc(*place, region["where"])
        except OSError as error:
            if region["where"] != "vram_bar" or error.errno not in (errno.EINVAL, errno.ENOMEM):
                raise
            print(
                f"note      {region['name']}: no VRAM that the host maps ({error.strerror}), host memory instead"
            )
            return self.alloc(*place, "gtt")

    def alloc(self, name: str, va: int, size_bytes: int, where: str) -> memoryview | None:
        raise NotImplementedError

    def queue(self) -> None:
        raise NotImplementedError

    def fault(self) -> str:
        """What the driver says of the last page fault, or nothing."""
        raise NotImplementedError

    def submit(self, words: list[int]) -> None:
        """Dwords, then the write pointer, then the doorbell; x86 keeps the order of these stores."""
        ring = self.ring.cast("I")
        for place, word in enumerate(words):
            ring[(self.put_dw + place) % len(ring)] = word
        self.put_dw += len(words)
        store_u64(self.wptr, self.put_dw)
        store_u64(self.doorbell, self.put_dw)


def store_u64(view: memoryview, value: int) -> None:
    ctypes.c_uint64.from_buffer(view).value = value


class Kfd(RecordedGpu):
    """/dev/kfd: include/uapi/linux/kfd_ioctl.h."""

    # VRAM 1, GTT 2, PUBLIC 1<<29, COHERENT 1<<26, UNCACHED 1<<25
    PLACES: ClassVar = {
        "vram": 1,
        "vram_bar": 1 | 1 << 29,
        "gtt": 2 | 1 << 26 | 1 << 25,
        "gtt_cached": 2 | 1 << 26,
    }
    ALWAYS = 1 << 31 | 1 << 30 | 1 << 28  # WRITABLE, EXECUTABLE, NO_SUBSTITUTE

    def __init__(self, system: System, node: dict[str, int]) -> None:
        self.kfd = system.open("/dev/kfd")
        super().__init__(system, node)
        self.gpu_id = node["gpu_id"]
        system.ioctl(self.kfd, 0x40084B15, struct.pack("<II", self.render, self.gpu_id))  # ACQUIRE_VM
        memory = struct.pack("<QIIIIII", 0, 0, 8, 0, 0, 0, 0)
        made = system.ioctl(self.kfd, 0xC0204B08, memory)  # CREATE_EVENT
        self.memory_event = struct.unpack_from("<I", made, 24)[0]

    def alloc(self, name: str, va: int, size_bytes: int, where: str) -> memoryview | None:
        request = struct.pack("<QQQQII", va, size_bytes, 0, 0, self.gpu_id, self.PLACES[where] | self.ALWAYS)
        answer = self.system.ioctl(self.kfd, 0xC0284B16, request)  # ALLOC_MEMORY_OF_GPU
        handle, offset = struct.unpack_from("<QQ", answer, 16)
        ids = bytearray(struct.pack("<I", self.gpu_id))
        self.system.ioctl(
            self.kfd, 0xC0184B18, struct.pack("<QQII", handle, 0, 1, 0), (8, ids)
        )  # MAP_MEMORY_TO_GPU
        return self.system.map(self.render, size_bytes, offset) if where.startswith("gtt") else None

    def queue(self) -> None:
        ring, host = self.own("ring", RING_BYTES)
        read_at, _ = self.own("rptr", PAGE)
        write_at, wptr = self.own("wptr", PAGE)
        end_of_pipe, _ = self.own("eop", PAGE, "vram")
        control, saved, whole = self.save_area()
        area, _ = self.own("save area", whole)
        request = struct.pack(
            "<QQQQIIIIIIQQQIIII", ring, write_at, read_at, 0, RING_BYTES, self.gpu_id, 0, 100, 7, 0,
            end_of_pipe, PAGE, area, saved, control, 0, 0,
        )  # fmt: skip
        answer = self.system.ioctl(self.kfd, 0xC0604B02, request)  # CREATE_QUEUE
        offset = struct.unpack_from("<Q", answer, 24)[0]
        slice_bytes = 0x2000  # of a process, amdkfd/kfd_doorbell.c
        doorbells = self.system.map(self.kfd, slice_bytes, offset & -slice_bytes)
        assert host is not None and wptr is not None
        self.ring, self.wptr, self.doorbell = host, wptr, doorbells[offset % slice_bytes :]

    def save_area(self) -> tuple[int, int, int]:
        """Control stack, save area, whole buffer, to the byte: kfd_queue_ctx_save_restore_size, kfd_queue.c."""
        node, instances = self.node, max(1, self.node.get("num_xcc", 1))
        units = node["simd_count"] // node["simd_per_cu"] // instances
        control, saved = node.get("ctl_stack_size", 0), node.get("cwsr_size", 0)
        if not (control and saved):
            large = node["gfx_target_version"] in (110000, 110001, 120000, 120001)
            control = whole_pages(40 + units * 32 * 12 + 8)
            saved = control + whole_pages(units * ((0x60000 if large else 0x40000) + 0x4000 + 0x10000 + 0x1000))
        return control, saved, whole_pages((saved + (units * 32 * 32 + 63 & -64)) * instances)

    def fault(self) -> str:
        events = bytearray(struct.pack("<40xI4x", self.memory_event))
        request = struct.pack("<QIIII", 0, 1, 0, 0, 0)
        answer = self.system.ioctl(self.kfd, 0xC0184B0C, request, (0, events))  # WAIT_EVENTS, without waiting
        if struct.unpack_from("<I", answer, 20)[0] != 0:
            return ""
        absent, read_only, no_execute, _, va = struct.unpack_from("<IIIIQ", events)
        how = [
            word
            for bit, word in ((absent, "not present"), (read_only, "read only"), (no_execute, "no execute"))
            if bit
        ]
        return f"GPU page fault at {va:#x} ({', '.join(how) or 'no reason given'}), {near(va)}"


class Userq(RecordedGpu):
    """User queues of the render node: include/uapi/drm/amdgpu_drm.h."""

    # domain, GEM_CREATE flags, memory type of the mapping
    PLACES: ClassVar = {
        "vram": (4, 2 | 8, 0),
        "vram_bar": (4, 1 | 8, 0),
        "gtt": (2, 1 | 0x4000, 4 << 5),
        "gtt_cached": (2, 1 | 0x2000, 0),
    }

    def __init__(self, system: System, node: dict[str, int]) -> None:
        super().__init__(system, node)
        offered = struct.unpack_from("<I", self.info(0x16, 448), 436)[0]  # DEV_INFO, userq_ip_mask: bit 1, compute
        if not offered & 2:
            raise Unusable(
                "this kernel offers no user queues for compute: Linux 6.16 or newer, amdgpu.user_queue=1, firmware"
            )
        self.timeline = struct.unpack_from("<I", system.ioctl(self.render, 0xC00864BF, bytes(8)))[
            0
        ]  # SYNCOBJ_CREATE
        self.point = 0
        self.before = self.last_fault()

    def alloc(self, name: str, va: int, size_bytes: int, where: str) -> memoryview | None:
        domain, flags, memory_type = self.PLACES[where]
        handle = self.gem(size_bytes, domain, flags)
        self.point += 1
        access = 2 | 4 | 8 | memory_type  # READABLE, WRITEABLE, EXECUTABLE
        request = struct.pack(
            "<IIIIQQQQIIQ", handle, 0, 1, access, va, 0, size_bytes, self.point, self.timeline, 0, 0
        )
        self.system.ioctl(self.render, 0x40406448, request)  # GEM_VA: MAP
        self.settle()
        return self.view(handle, size_bytes) if where.startswith("gtt") else None

    def gem(self, size_bytes: int, domain: int, flags: int) -> int:
        made = self.system.ioctl(self.render, 0xC0206440, struct.pack("<QQQQ", size_bytes, PAGE, domain, flags))
        return int(struct.unpack_from("<I", made)[0])

    def view(self, handle: int, size_bytes: int) -> memoryview:
        answer = self.system.ioctl(self.render, 0xC0086441, struct.pack("<Q", handle))  # GEM_MMAP
        return self.system.map(self.render, size_bytes, struct.unpack("<Q", answer)[0])

    def settle(self) -> None:
        """The page tables have every mapping so far."""
        deadline = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 10_000_000_000
        handles, points = bytearray(struct.pack("<I", self.timeline)), bytearray(struct.pack("<Q", self.point))
        request = struct.pack("<QQqIIIIQ", 0, 0, deadline, 1, 3, 0, 0, 0)
        self.system.ioctl(self.render, 0xC03064CA, request, (0, handles), (8, points))  # SYNCOBJ_TIMELINE_WAIT

    def queue(self) -> None:
        ring, host = self.own("ring", RING_BYTES)
        read_at, _ = self.own("rptr", PAGE)
        write_at, wptr = self.own("wptr", PAGE)
        try:
            end_of_pipe_bytes = struct.unpack_from("<I", self.info(0x24, 16, 1))[0] or 2048  # UQ_FW_AREAS, compute
        except OSError:
            end_of_pipe_bytes = 2048  # kernels up to 7.0 do not say
        end_of_pipe, _ = self.own("eop", whole_pages(end_of_pipe_bytes), "vram")
        doorbell = self.gem(PAGE, 0x40, 0)
        doorbells = self.view(doorbell, PAGE)
        mqd = bytearray(struct.pack("<Q", end_of_pipe))
        request = struct.pack(
            "<IIIIIIQQQQQQ", 1, 0, 1, doorbell, 4, 0, ring, RING_BYTES, read_at, write_at, 0, len(mqd)
        )
        self.system.ioctl(self.render, 0xC0486456, request, (56, mqd))  # USERQ: CREATE, compute, doorbell 4
        assert host is not None and wptr is not None
        self.ring, self.wptr, self.doorbell = host, wptr, doorbells[4 * 8 :]

    def info(self, query: int, size_bytes: int, kind: int = 0) -> bytes:
        answer = bytearray(size_bytes)
        self.system.ioctl(
            self.render, 0x40206445, struct.pack("<QIIIIQ", 0, size_bytes, query, kind, 0, 0), (0, answer)
        )
        return bytes(answer)

    def last_fault(self) -> tuple[int, int]:
        try:
            va, status = struct.unpack_from("<QI", self.info(0x23, 16))  # GPUVM_FAULT
        except OSError:
            return 0, 0
        return va, status

    def fault(self) -> str:
        """The kernel keeps the last one for good: only a new one counts."""
        va, status = self.last_fault()
        return f"GPU page fault at {va:#x} (status {status:#x}), {near(va)}" if (va, status) != self.before else ""


def whole_pages(size_bytes: int) -> int:
    return size_bytes + PAGE - 1 & -PAGE


def near(va: int) -> str:
    """The recorded buffer that an address lies in or behind."""
    below = [each for each in CASE["names"] if each[0] <= va]
    inside = [each for each in below if va < each[0] + each[1]]
    if inside:
        start, _, name = min(inside, key=lambda each: each[1])
        return f"{name}+{va - start:#x}"
    if not below:
        return "below every buffer"
    start, size_bytes, name = max(below)
    return f"in no buffer: {va - start - size_bytes:#x} bytes behind the end of {name}"


# --- the run -------------------------------------------------------------------------------------------------


class RecordedRun:
    def __init__(self, gpu: RecordedGpu, timeout_seconds: float) -> None:
        self.gpu, self.timeout_seconds = gpu, timeout_seconds
        self.views: dict[int, memoryview] = {}  # of recorded buffers the host maps, by address
        self.known = len(gpu.system.findings())  # others may have used the device

    def all(self) -> int:
        self.load()
        self.submit("the recorded submission", CASE["submission"])
        return self.compare(self.findings())

    def findings(self) -> list[str]:
        return self.gpu.system.findings()[self.known :]

    def load(self) -> None:
        for region in CASE["regions"]:
            view = self.gpu.place(region)
            if view is not None:
                self.views[region["va"]] = view
        staging = self.gpu.alloc("staging", CASE["staging"]["va"], CASE["staging"]["size"], "gtt")
        fence = self.gpu.alloc("fence", CASE["fence"]["va"], PAGE, "gtt")
        assert staging is not None and fence is not None
        self.staging, self.views[CASE["fence"]["va"]] = staging, fence
        self.gpu.queue()
        self.gpu.system.announce(CASE["names"])
        for region in CASE["regions"]:
            view = self.views.get(region["va"])
            target = self.staging if view is None else view
            target[: region["size"]] = bytes(region["size"])
            for offset, data in region["runs"]:
                content = zlib.decompress(base64.b64decode("".join(data)))
                target[offset : offset + len(content)] = content
            if region["load"] and view is None:
                self.submit(f"loading {region['name']}", region["load"])

    def submit(self, what: str, submission: dict[str, Any]) -> None:
        words = [int(word, 16) for line in submission["words"] for word in line.split()]
        va, value = submission["fence"]
        view = next(view[va - start :] for start, view in self.views.items() if start <= va < start + len(view))
        reached = ctypes.c_uint64.from_buffer(view)
        self.gpu.submit(words)
        deadline = time.monotonic() + self.timeout_seconds
        asked = 0.0
        while reached.value < value:
            now = time.monotonic()
            if now - asked > 0.1:
                asked, fault = now, self.gpu.fault()
                if fault:
                    raise Unusable(f"{what} does not end: {fault}")
            if now > deadline:
                found = self.findings()
                why = f"; the simulated device found: {found[0]}" if found else ""
                late = f"{what} does not end within {self.timeout_seconds:g} s"
                raise Unusable(f"{late}: its fence has {reached.value}, wanted {value}{why}")
            time.sleep(1e-4)

    def compare(self, findings: list[str]) -> int:
        differing = 0
        for output in CASE["outputs"]:
            want = zlib.decompress(base64.b64decode("".join(output["data"])))
            if output["fetch"]:
                self.submit(f"fetching {output['name']}", output["fetch"])
                got = bytes(self.staging[: len(want)])
            else:
                start, view = next((s, v) for s, v in self.views.items() if s <= output["va"] < s + len(v))
                got = bytes(view[output["va"] - start :][: len(want)])
            differing += self.output(output, want, got)
        for each in findings[:8]:
            print(f"found by the simulated device: {each}")
        if differing or findings:
            what = (
                f"{differing} of {len(CASE['outputs'])} outputs differ"
                if differing
                else f"{len(findings)} findings"
            )
            print(f"DIFFERS   {CASE['title']}: {what}")
            return 1
        print(f"BIT-EXACT {CASE['title']}: {len(CASE['outputs'])} outputs as expected")
        return 0

    def output(self, output: dict[str, Any], want: bytes, got: bytes) -> bool:
        """Whether it differs, in bits; the first element is printed."""
        kind = {"f32": "f", "i32": "i"}[output["dtype"]]
        pairs = list(zip(memoryview(want).cast("I"), memoryview(got).cast("I"), strict=True))
        bad = [index for index, (right, wrong) in enumerate(pairs) if right != wrong]
        shape = "x".join(map(str, output["shape"]))
        if not bad:
            print(f"bit-exact {output['name']} {output['dtype']} {shape}")
            return False
        first = left = bad[0]
        place: list[int] = []
        for size in reversed(output["shape"]):
            place.insert(0, left % size)
            left //= size
        right, wrong = (struct.unpack(f"<{kind}", struct.pack("<I", word))[0] for word in pairs[first])
        print(
            f"differs   {output['name']} {output['dtype']} {shape}: {len(bad)} of {len(pairs)} elements, "
            f"first {place}: wanted {right!r} ({pairs[first][0]:#010x}), got {wrong!r} ({pairs[first][1]:#010x})"
        )
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=30.0, metavar="S", help="of each submission (default 30)")
    parser.add_argument("--gpu", type=int, default=0, metavar="N", help="of several GPUs (default the first)")
    parser.add_argument(
        "--simulated", metavar="SOCKET", default=os.environ.get("ZINC_SIM_SOCKET", ""),
        help="run on a simulated device instead (also: the environment variable ZINC_SIM_SOCKET)",
    )  # fmt: skip
    arguments = parser.parse_args()
    system: System
    try:
        system = Simulated(arguments.simulated) if arguments.simulated else Linux()
        nodes = nodes_of(system)
        if arguments.gpu >= len(nodes):
            raise Unusable(f"no GPU number {arguments.gpu}: KFD lists {len(nodes)}")
        node = nodes[arguments.gpu]
        if node["gfx_target_version"] != CASE["gfx_target_version"]:
            here, made_for = node["gfx_target_version"], CASE["gfx_target_version"]
            raise Unusable(f"this GPU's gfx_target_version is {here}, the code is for {made_for}: {CASE['chip']}")
        gpu = Kfd(system, node) if CASE["tier"] == "t1" else Userq(system, node)
        return RecordedRun(gpu, arguments.timeout).all()
    except Unusable as failure:
        print(f"UNUSABLE  {failure}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"UNUSABLE  {where}{error.strerror or error}; wanted an AMD GPU, amdgpu loaded, and the right to open "
            "/dev/kfd and /dev/dri/renderD* (groups render, video)"
        )
    return 2


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a GPU that hangs must not hold the interpreter's end
