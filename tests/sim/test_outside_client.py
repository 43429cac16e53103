"""What a client that shares no code with the device gets from it, byte for byte, over the socket."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sim.outsider import (
    COMPLETE,
    COMPUTE_QUEUE,
    DESTROY_EVENT,
    DRM,
    EXECUTABLE,
    GET_APERTURES,
    GET_VERSION,
    MEMORY_EVENT,
    MMIO_REMAP,
    PAGE,
    PUBLIC,
    SDMA_QUEUE,
    SIGNAL_EVENT,
    SYSTEM,
    TIMEOUT,
    USERPTR,
    VRAM,
    WRITABLE,
    Outsider,
    OutsideWire,
    release_mem,
    sdma_copy,
    sdma_fence,
    sdma_poll_at_least,
    split_va,
)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """serve(chip, linux, *faults): a device of its own, and its socket."""
    children: list[subprocess.Popen[str]] = []

    def start(chip: str = "r9700", linux: str = "7.0", *faults: str) -> Path:
        path = tmp_path / f"{len(children)}.sock"
        words = [sys.executable, "-m", "zinc_rt.cli", "sim", "--socket", str(path), "--chip", chip]
        words += ["--stay", "--linux", linux, *(word for fault in faults for word in ("--inject", fault))]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None and json.loads(child.stdout.readline()) == {"ready": str(path)}
        return path

    yield start
    for child in children:
        child.terminate()
        assert child.wait(10) == 128 + signal.SIGTERM
        assert child.stdout is not None
        child.stdout.close()
    assert not list(tmp_path.glob("*.sock")), "the sockets go with them"


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("chip", "linux", "sdma"),
    [("r9700", "7.0", "7"), ("rx9060xt", "6.12", "7"), ("rx7900xtx", "6.8", "6"), ("strix-halo", "7.0", "6")],
)
def test_copies_fences_and_events_on_compute_and_sdma(serve: Any, chip: str, linux: str, sdma: str) -> None:
    client = Outsider(serve(chip, linux))
    wire = client.wire
    assert wire.text(f"{DRM}/ip_discovery/die/0/42/0/major") == f"{sdma}\n"
    assert struct.unpack("<II", client.ioctl(GET_VERSION, bytes(8)))[0] == 1
    assert struct.unpack("<QII", client.ioctl(GET_APERTURES, bytes(16)))[1] == 1

    client.event(SIGNAL_EVENT, client.event_page.handle)
    compute_done, copied = client.event(SIGNAL_EVENT), client.event(SIGNAL_EVENT)
    compute, sdma_queue = client.queue(COMPUTE_QUEUE), client.queue(SDMA_QUEUE, old_struct=True)
    data, vram = client.alloc(0x10000, SYSTEM), client.alloc(0x10000, VRAM | PUBLIC | WRITABLE | EXECUTABLE)
    remap = client.alloc(PAGE, MMIO_REMAP | WRITABLE)
    memory = os.memfd_create("pages of the client's", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 2 * PAGE)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    mine = client.alloc(2 * PAGE, USERPTR | WRITABLE | EXECUTABLE, pages=memory)
    os.close(memory)

    pattern = random.Random(chip).randbytes(0x3001)
    assert vram.host is not None and data.host is not None and mine.host is not None
    vram.host[: len(pattern)] = pattern
    mine.host[: PAGE + 5] = pattern[: PAGE + 5]
    remap.store(0, 1)  # HDP: what was stored through the BAR

    slot = client.event_page.va
    sdma_queue.submit([
        *sdma_poll_at_least(data.va + 0x80, 0x5EED),
        *sdma_copy(data.va + 0x1003, vram.va, len(pattern)),
        *sdma_copy(vram.va + 0x8000, mine.va, PAGE + 5),
        *sdma_copy(data.va + 0x6000, vram.va + 0x8000, PAGE + 5),
        0x20D, *split_va(data.va + 0x90),
        *sdma_fence(data.va + 0x98, 0xF00D),
        *sdma_fence(slot + copied * 8, copied),
        0x6, copied,
    ])  # fmt: skip
    assert client.wait(copied, timeout_ms=50)[0] == TIMEOUT, "nothing may run past the poll"
    assert data.u64(0x98) == 0
    compute.submit([
        0xC0063700, 0x100500, *split_va(data.va), 0x01234567, 0x89ABCDEF, 0xDEADBEEF, 0xFFFFFFFF,
        0xC0044000, 0x110202, *split_va(data.va), *split_va(data.va + 0x40),
        0xFFFF1000, 0xC0021000, 0xC000F200, 0xC000F200, 0xC000F200,
        *release_mem(data.va + 0x88, 0, data=3),
        *release_mem(data.va + 0x80, 0x5EED),
        *release_mem(slot + compute_done * 8, compute_done, interrupt=2, context=compute_done),
    ])  # fmt: skip
    result, events = client.wait(compute_done)
    assert result == COMPLETE and events[40:44] == struct.pack("<I", compute_done)
    assert client.wait(copied)[0] == COMPLETE
    assert client.wait(compute_done, copied, timeout_ms=0)[0] == TIMEOUT, "both events reset themselves"

    wanted = struct.pack("<4I", 0x01234567, 0x89ABCDEF, 0xDEADBEEF, 0xFFFFFFFF)
    assert data.host[:0x40] == wanted + bytes(0x30)
    assert data.host[0x40:0x80] == wanted[:8] + bytes(0x38)
    assert data.u64(0x80) == 0x5EED and data.u64(0x98) == 0xF00D
    assert 0 < data.u64(0x88) <= data.u64(0x90), "one clock, 100 MHz, read by both engines"
    assert data.host[0xA0:0x1003] == bytes(0x1003 - 0xA0)
    assert data.host[0x1003 : 0x1003 + len(pattern)] == pattern
    assert data.host[0x1003 + len(pattern) : 0x6000] == bytes(0x6000 - 0x1003 - len(pattern))
    assert data.host[0x6000:0x8000] == pattern[: PAGE + 5] + bytes(PAGE - 5)
    assert (compute.consumed, sdma_queue.consumed) == (compute.end, sdma_queue.end)
    assert wire.ask(op="findings")["findings"] == []

    for queue in (compute, sdma_queue):
        queue.destroy()
        with pytest.raises(OSError) as caught:
            queue.destroy()
        assert caught.value.errno == errno.EINVAL
    for event_id in (compute_done, copied):
        client.ioctl(DESTROY_EVENT, struct.pack("<II", event_id, 0))
    client.release()
    assert int(wire.text(f"{DRM}/mem_info_vram_used")) == 0
    wire.request_or_raise(op="close", fd=client.kfd)
    wire.request_or_raise(op="close", fd=client.drm)


@pytest.mark.rest
def test_ring_wraps_many_times(serve: Any) -> None:
    client = Outsider(serve())
    client.event(SIGNAL_EVENT, client.event_page.handle)
    data = client.alloc(PAGE, SYSTEM)
    compute, sdma_queue = client.queue(COMPUTE_QUEUE), client.queue(SDMA_QUEUE)
    for turn in range(1, 12):
        compute.submit([0xFFFF1000] * 8009 + release_mem(data.va, turn))
        sdma_queue.submit([0] * 8009 + sdma_fence(data.va + 8, turn))
        deadline = time.monotonic() + 20
        while (data.u64(0), data.u64(8)) != (turn, turn) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert (data.u64(0), data.u64(8)) == (turn, turn)
    assert compute.end > 5 * 0x4000 and sdma_queue.end > 5 * 0x10000
    assert compute.consumed == compute.end % 0x4000, "wraps with the ring"
    assert sdma_queue.consumed == sdma_queue.end, "does not"


@pytest.mark.rest
def test_fault_is_a_memory_event_and_queue_can_be_destroyed(serve: Any) -> None:
    client = Outsider(serve())
    signal = client.event(SIGNAL_EVENT, client.event_page.handle)
    fault = client.event(MEMORY_EVENT)
    data, queue = client.alloc(PAGE, SYSTEM), client.queue(SDMA_QUEUE)
    queue.submit([*sdma_copy(data.va, 0x7F00_0000_2040, 64), *sdma_fence(data.va + 8, 1)])
    result, events = client.wait(signal, fault)
    assert result == COMPLETE
    assert events[:32] == bytes(32), "the other entry stays as it was"
    not_present, read_only, no_execute, _, va, gpu_id, kind = struct.unpack_from("<IIIIQII", events, 48)
    assert (not_present, read_only, no_execute, kind) == (1, 0, 0, 0)
    assert (va, gpu_id) == (0x7F00_0000_2000, client.gpu_id)
    queue.destroy()
    assert data.u64(8) == 0
    second = client.queue(SDMA_QUEUE)
    second.submit(sdma_fence(data.va + 8, 2))
    deadline = time.monotonic() + 10
    while data.u64(8) != 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert data.u64(8) == 2


@pytest.mark.rest
def test_invalid_packet_stops_the_queue_and_is_named_in_the_log(serve: Any) -> None:
    client = Outsider(serve())
    signal = client.event(SIGNAL_EVENT, client.event_page.handle)
    queue = client.queue(COMPUTE_QUEUE)
    queue.submit([
        0xFFFF1000,
        0xC000F200, 0,
        *release_mem(client.event_page.va + signal * 8, signal, interrupt=2, context=signal),
    ])  # fmt: skip
    assert client.wait(signal, timeout_ms=200)[0] == TIMEOUT
    assert queue.consumed == 1
    text = "\n".join(client.wire.ask(op="findings")["dmesg"])
    assert "dword 0x1 " in text and "0xf2" in text


@pytest.mark.rest
@pytest.mark.parametrize("version", [0, 2, None, "1"])
def test_other_protocol_version_is_rejected_with_a_message(serve: Any, version: object) -> None:
    path = serve()
    with pytest.raises(OSError, match="this device speaks 1") as caught:
        OutsideWire(path, version)
    assert caught.value.errno == errno.EPROTONOSUPPORT
    assert "simulated" in OutsideWire(path).text("/proc/version")


@pytest.mark.rest
def test_fault_can_be_injected_over_the_protocol(serve: Any) -> None:
    path = serve("r9700", "7.0", "vm-busy:1")
    with pytest.raises(OSError) as caught:
        Outsider(path)
    assert caught.value.errno == errno.EBUSY
    client = Outsider(path)
    client.wire.request_or_raise(op="inject", name="doorbell-offset:1")
    queue = client.queue(SDMA_QUEUE)
    with pytest.raises(OSError) as caught:
        client.doorbell(queue.doorbell_offset)
    assert caught.value.errno == errno.EFAULT
    client.doorbell(queue.doorbell_offset)


PROGRAM = """
class Args(ctypes.Structure):
    _fields_ = [("va", ctypes.c_uint64), ("size", ctypes.c_uint64), ("handle", ctypes.c_uint64),
                ("offset", ctypes.c_uint64), ("gpu_id", ctypes.c_uint32), ("flags", ctypes.c_uint32)]

nodes = files.open("/sys/class/kfd/kfd/topology/nodes", os.O_RDONLY | os.O_DIRECTORY)
gpu_id = int(files.open(f"{nodes.path}/{nodes.names()[1]}/gpu_id").read())
kfd, drm = files.open("/dev/kfd", os.O_RDWR), files.open("/dev/dri/renderD128", os.O_RDWR)
kfd.ioctl(0x40084B15, (ctypes.c_uint32 * 2)(drm.fd, gpu_id))
va = files.map_anonymous(0, 8192, 0)
args = Args(va, 8192, 0, 0, gpu_id, 0xC0000002)
kfd.ioctl(0xC0284B16, args)
assert drm.mmap(va, 8192, 3, args.offset) == va
ids = (ctypes.c_uint32 * 1)(gpu_id)
mapping = (ctypes.c_uint64 * 3)(args.handle, ctypes.addressof(ids), 1)
kfd.ioctl(0xC0184B18, mapping)
assert mapping[2] == 1 | 1 << 32, "one device, one success"
ctypes.memmove(va, b"both sides", 10)
vm = files.device.process.file(drm.fd).vm
assert vm.read(va, 10) == b"both sides"
try:
    kfd.ioctl(0x40084B17, ctypes.c_uint64(args.handle))
except OSError as error:
    assert error.errno == 16, "still mapped"
files.munmap(va, 8192)
print("done")
"""


def test_file_layer_from_the_manual_runs_a_program() -> None:
    manual = Path(__file__).parents[2] / "docs/simulated-device.md"
    code = manual.read_text().split("```python\n")[2].split("```")[0]
    assert code.count("\n") <= 40
    output = subprocess.run([sys.executable, "-c", code + PROGRAM], capture_output=True, text=True, timeout=60)
    assert (output.returncode, output.stdout.splitlines()[-1]) == (0, "done"), output.stderr
