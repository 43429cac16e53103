"""A client that shares no code with the device: literal ioctl numbers, structs, dwords and socket messages."""

from __future__ import annotations

import array
import json
import mmap
import os
import socket
import struct
from pathlib import Path
from typing import Any

PAGE = 0x1000
NODE = "/sys/class/kfd/kfd/topology/nodes/1"
DRM = "/sys/class/drm/renderD128/device"

GET_VERSION, CREATE_QUEUE, DESTROY_QUEUE = 0x80084B01, 0xC0604B02, 0xC0084B03
CREATE_EVENT, DESTROY_EVENT, WAIT_EVENTS = 0xC0204B08, 0x40084B09, 0xC0184B0C
GET_APERTURES, ACQUIRE_VM = 0xC0104B14, 0x40084B15
ALLOC, FREE, MAP, UNMAP, RUNTIME_ENABLE = 0xC0284B16, 0x40084B17, 0xC0184B18, 0xC0184B19, 0xC0104B25
OLD_CREATE_QUEUE = 0xC0584B02  # 88 bytes, before SDMA engines could be chosen

VRAM, GTT, USERPTR, MMIO_REMAP = 1, 2, 4, 0x10
WRITABLE, EXECUTABLE, PUBLIC, COHERENT, UNCACHED = 1 << 31, 1 << 30, 1 << 29, 1 << 26, 1 << 25
SYSTEM = GTT | WRITABLE | EXECUTABLE | COHERENT | UNCACHED
SIGNAL_EVENT, MEMORY_EVENT = 0, 8
COMPLETE, TIMEOUT = 0, 1
COMPUTE_QUEUE, SDMA_QUEUE, AQL_QUEUE = 0, 1, 2
UNIT_BYTES = {COMPUTE_QUEUE: 4, SDMA_QUEUE: 1, AQL_QUEUE: 64}  # of write pointers and doorbells


class OutsideWire:
    """Implements the messages of docs/simulated-device.md."""

    def __init__(self, path: Path, version: object = 1) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.token = self.request_or_raise(version=version)["token"]

    def ask(self, body: bytes = b"", fds: tuple[int, ...] = (), **header: Any) -> dict[str, Any]:
        text = json.dumps(header).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([struct.pack("<IQB", len(text), len(body), len(fds))], rights)
        self.socket.sendall(text + body)
        head, came, _, _ = self.socket.recvmsg(13, socket.CMSG_SPACE(32))
        text_bytes, body_bytes, _ = struct.unpack("<IQB", head)
        answer = json.loads(self.socket.recv(text_bytes, socket.MSG_WAITALL))
        answer["body"] = self.socket.recv(body_bytes, socket.MSG_WAITALL) if body_bytes else b""
        answer["fds"] = list(array.array("i", came[0][2])) if came else []
        return answer

    def request_or_raise(self, body: bytes = b"", fds: tuple[int, ...] = (), **header: Any) -> dict[str, Any]:
        answer = self.ask(body, fds, **header)
        if answer.get("errno"):
            raise OSError(answer["errno"], answer["message"])
        return answer

    def text(self, path: str) -> str:
        return self.request_or_raise(op="read_file", path=path)["body"].decode()

    def read_properties(self, path: str) -> dict[str, int]:
        return {name: int(value) for name, value in (line.split() for line in self.text(path).splitlines())}


class OutsideBuffer:
    def __init__(self, va: int, size_bytes: int, handle: int, host: mmap.mmap | None) -> None:
        self.va, self.size_bytes, self.handle, self.host = va, size_bytes, handle, host

    def u64(self, offset: int) -> int:
        assert self.host is not None
        return int(struct.unpack_from("=Q", self.host, offset)[0])

    def store(self, offset: int, value: int) -> None:
        """One store of 8 bytes."""
        assert self.host is not None
        memoryview(self.host).cast("Q")[offset // 8] = value


class Outsider:
    """One process on the device, from open to close."""

    def __init__(self, path: Path) -> None:
        self.wire = OutsideWire(path)
        self.gpu_id = int(self.wire.text(f"{NODE}/gpu_id"))
        self.properties = self.wire.read_properties(f"{NODE}/properties")
        self.kfd = self.wire.request_or_raise(op="open", path="/dev/kfd", flags=os.O_RDWR)["fd"]
        render = f"/dev/dri/renderD{self.properties['drm_render_minor']}"
        self.drm = self.wire.request_or_raise(op="open", path=render, flags=os.O_RDWR)["fd"]
        self.next_va = 0x10_0000_0000
        self.buffers: list[OutsideBuffer] = []
        self.ioctl(ACQUIRE_VM, struct.pack("<II", self.drm, self.gpu_id))
        self.ioctl(RUNTIME_ENABLE, struct.pack("<QII", 0, 0, 0))
        self.event_page = self.alloc(0x8000, SYSTEM)
        self.doorbells: mmap.mmap | None = None

    def ioctl(self, request: int, body: bytes, array_at: int = 0, content: bytes = b"", **more: Any) -> bytes:
        """Return the returned struct, then the data written to the array."""
        arrays = [[array_at, len(content), True]] if content else []
        size = request >> 16 & 0x3FFF
        assert len(body) == size
        fds = more.pop("fds", ())
        header = {"op": "ioctl", "fd": self.kfd, "request": request, "size": size, "arrays": arrays, **more}
        answer = self.wire.request_or_raise(body + content, fds, **header)
        self.written = [tuple(item) for item in answer["written"]]
        return bytes(answer["body"])

    def map_fd(self, fd: int, size_bytes: int, offset: int) -> mmap.mmap:
        answer = self.wire.request_or_raise(op="mmap", fd=fd, size=size_bytes, offset=offset)
        try:
            return mmap.mmap(answer["fds"][0], size_bytes, offset=answer["offset"])
        finally:
            os.close(answer["fds"][0])

    def alloc(self, size_bytes: int, flags: int, *, mapped: bool = True, pages: int = -1) -> OutsideBuffer:
        va, self.next_va = self.next_va, self.next_va + size_bytes + 0x20_0000 & ~0x1F_FFFF
        request = struct.pack("<QQQQII", va, size_bytes, 0, va if pages >= 0 else 0, self.gpu_id, flags)
        more: dict[str, Any] = {"fds": (pages,), "pages": [va, size_bytes]} if pages >= 0 else {}
        _, _, handle, offset, _, _ = struct.unpack("<QQQQII", self.ioctl(ALLOC, request, **more))
        assert handle >> 32 == self.gpu_id
        buffer = OutsideBuffer(va, size_bytes, handle, None)
        if flags & USERPTR:
            buffer.host = mmap.mmap(pages, size_bytes)
        elif flags & (GTT | PUBLIC | MMIO_REMAP):
            buffer.host = self.map_fd(self.drm, size_bytes, offset)
        if mapped:
            self.on_gpu(MAP, buffer)
        self.buffers.append(buffer)
        return buffer

    def on_gpu(self, request: int, buffer: OutsideBuffer) -> None:
        body = struct.pack("<QQII", buffer.handle, 0x7000, 1, 0)
        answer = self.ioctl(request, body, 0x7000, struct.pack("<I", self.gpu_id))
        assert struct.unpack("<QQII", answer[:24])[3] == 1

    def event(self, kind: int, page_handle: int = 0) -> int:
        answer = self.ioctl(CREATE_EVENT, struct.pack("<QIIIIII", page_handle, 0, kind, 1, 0, 0, 0))
        _, trigger, _, _, _, event_id, slot = struct.unpack("<QIIIIII", answer)
        assert kind != SIGNAL_EVENT or trigger == slot == event_id
        return int(event_id)

    def wait(self, *event_ids: int, timeout_ms: int = 10000) -> tuple[int, bytes]:
        """The result, and EVENT_DATA of each."""
        content = b"".join(struct.pack("<40xI4x", event_id) for event_id in event_ids)
        body = struct.pack("<QIIII", 0x9000, len(event_ids), 0, timeout_ms, 0)
        answer = self.ioctl(WAIT_EVENTS, body, 0x9000, content)
        seen, index = bytearray(content), 24
        for address, size_bytes in self.written:
            seen[address - 0x9000 : address - 0x9000 + size_bytes] = answer[index : index + size_bytes]
            index += size_bytes
        return struct.unpack("<QIIII", answer[:24])[4], bytes(seen)

    def queue(self, kind: int, *, old_struct: bool = False) -> OutsideQueue:
        return OutsideQueue(self, kind, old_struct)

    def doorbell(self, offset: int) -> OutsideBuffer:
        if self.doorbells is None:
            self.doorbells = self.map_fd(self.kfd, 0x2000, offset & ~0x1FFF)
        return OutsideBuffer(0, 0x2000, 0, self.doorbells)

    def save_area(self) -> tuple[int, int, int]:
        """Return the sizes of control stack, save area and whole buffer, computed from the node's properties like
        in the kernel.
        """
        compute_units = self.properties["simd_count"] // self.properties["simd_per_cu"]
        control = 40 + compute_units * 32 * 12 + 8 + PAGE - 1 & -PAGE
        saved = control + (compute_units * (0x60000 + 0x4000 + 0x10000 + 0x1000) + PAGE - 1 & -PAGE)
        return control, saved, saved + (compute_units * 32 * 32 + 63 & -64) + PAGE - 1 & -PAGE

    def release(self) -> None:
        for buffer in self.buffers:
            self.on_gpu(UNMAP, buffer)
            if buffer is not self.event_page:
                self.ioctl(FREE, struct.pack("<Q", buffer.handle))


class OutsideQueue:
    def __init__(self, client: Outsider, kind: int, old_struct: bool) -> None:
        self.client, self.unit, self.end = client, UNIT_BYTES[kind], 0
        self.ring, self.pointers = client.alloc(0x10000, SYSTEM), client.alloc(PAGE, SYSTEM)
        end_of_pipe = area = 0
        control = saved = 0
        if kind != SDMA_QUEUE:
            control, saved, whole = client.save_area()
            end_of_pipe = client.alloc(PAGE, VRAM | WRITABLE | EXECUTABLE).va
            area = client.alloc(whole, VRAM | WRITABLE | EXECUTABLE).va
        write_at, read_at = self.pointers.va + 0x38, self.pointers.va + 0x80
        sizes = (0x10000, client.gpu_id, kind, 100, 7, 0)
        body = struct.pack("<QQQQIIIIIIQQQII", self.ring.va, write_at, read_at, 0, *sizes, end_of_pipe,
                           PAGE if end_of_pipe else 0, area, saved, control)  # fmt: skip
        answer = client.ioctl(
            OLD_CREATE_QUEUE if old_struct else CREATE_QUEUE, body + bytes(0 if old_struct else 8)
        )
        self.doorbell_offset = struct.unpack_from("<Q", answer, 24)[0]
        self.queue_id = struct.unpack_from("<I", answer, 52)[0]

    def submit(self, dwords: list[int]) -> None:
        """Write the dwords, then the write pointer, then the doorbell."""
        assert self.ring.host is not None
        words = memoryview(self.ring.host).cast("I")
        index = self.end * self.unit // 4
        for location, value in enumerate(dwords):
            words[(index + location) % len(words)] = value
        self.end += len(dwords) * 4 // self.unit
        self.pointers.store(0x38, self.end)
        self.client.doorbell(self.doorbell_offset).store(self.doorbell_offset & 0x1FFF, self.end)

    @property
    def consumed(self) -> int:
        return self.pointers.u64(0x80)

    def destroy(self) -> None:
        self.client.ioctl(DESTROY_QUEUE, struct.pack("<II", self.queue_id, 0))


def split_va(value: int) -> list[int]:
    return [value & 0xFFFF_FFFF, value >> 32]


def release_mem(va: int, value: int, *, data: int = 2, interrupt: int = 0, context: int = 0) -> list[int]:
    """End of pipe, event 0x14 with index 5: invalidate vector caches and GL2, and write back GL2, in sequence."""
    return [0xC0064900, 0x704514, data << 29 | interrupt << 24, *split_va(va), *split_va(value), context]


def sdma_copy(to: int, source: int, size_bytes: int) -> list[int]:
    return [0x1, size_bytes - 1, 0, *split_va(source), *split_va(to)]


def sdma_fence(va: int, value: int) -> list[int]:
    return [0x30005, *split_va(va), value]


def sdma_poll_at_least(va: int, value: int) -> list[int]:
    return [0xD0000008, *split_va(va), value, 0xFFFF_FFFF, 0x0FFF_0004]
