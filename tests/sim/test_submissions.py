"""AMDGPU_CS: errnos in the kernel's order, jobs on each ring, fences, faults, resets, guilty contexts."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sim.device import open_machine
from sim.test_user_queues import LATER, PAGE, RenderClient

from zinc_rt.kmd.uapi import amdgpu as uapi
from zinc_rt.kmd.uapi import drm
from zinc_rt.kmd.uapi.host_memory import HostArray, make_u32_array
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import Nop, WaitRegMem, WriteData
from zinc_rt.sim.driver.files import DrmFile
from zinc_rt.sim.driver.kernel_rings import JOBS_KEPT, MAX_IBS
from zinc_rt.sim.interfaces import QueueKind
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import MachineOptions
from zinc_rt.sim.tables import amdgpu
from zinc_rt.sim.tables import drm as sim_drm
from zinc_rt.sim.tables.structs import Fields, IoctlRow

GFX, COMPUTE, DMA = amdgpu.AMDGPU_HW_IP_GFX, amdgpu.AMDGPU_HW_IP_COMPUTE, amdgpu.AMDGPU_HW_IP_DMA
ONE_DWORD_NOP = 0xFFFF1000
WAIT_FOR_SUBMIT = drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT


class JobClient(RenderClient):
    """A client with a context. Its data buffer starts with zeros; a `chunk` is (id, bytes)."""

    def __init__(self, owner: SimMachine) -> None:
        super().__init__(owner)
        self.context = self.command(amdgpu.IOCTL_CTX, op=amdgpu.AMDGPU_CTX_OP_ALLOC_CTX)["new_ctx_id"]
        self.data = self.buffer()

    def command(self, ioctl: IoctlRow, **values: Any) -> Fields:
        assert ioctl.layout is not None
        record = ioctl.layout.new(**values)
        size = len(record.raw)
        request = 3 << 30 | size << 16 | ord("d") << 8 | ioctl.number
        self.driver.ioctl(self.drm, request, record.raw)
        return record

    def fails(self, ioctl: IoctlRow, **values: Any) -> int:
        with pytest.raises(OSError) as caught:
            self.command(ioctl, **values)
        return caught.value.errno or -1

    def ib(self, *packets: Packet, ip: int = COMPUTE, ring: int = 0, **values: int) -> tuple[int, bytes]:
        words = [word for packet in packets for word in packet.words(Generation.GFX12)]
        return self.ib_of_words(words, ip=ip, ring=ring, **values)

    def ib_of_words(self, words: list[int], *, ip: int, ring: int = 0, **values: int) -> tuple[int, bytes]:
        handle = self.buffer()
        words = words + [0 if ip == DMA else ONE_DWORD_NOP] * (-len(words) % 8)
        self.store(handle).view[: 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
        members = {"va_start": self.va[handle], "ib_bytes": 4 * len(words), "ip_type": ip, "ring": ring}
        return amdgpu.AMDGPU_CHUNK_ID_IB, bytes(amdgpu.CS_CHUNK_IB.new(**(members | values)).raw)

    def store(self, handle: int) -> Any:
        file = self.driver.process.files[self.drm]
        assert isinstance(file, DrmFile)
        return file.handles[handle].store

    def arguments(self, *chunks: tuple[int, bytes], **changes: int) -> dict[str, int]:
        pointers = []
        for chunk_id, raw in chunks:
            data = self.keep(HostArray(raw or bytes(4)))
            chunk = amdgpu.CS_CHUNK.new(chunk_id=chunk_id, length_dw=len(raw) // 4, chunk_data=data)
            pointers.append(self.keep(HostArray(bytes(chunk.raw))))
        array = self.keep(HostArray(struct.pack(f"<{len(pointers)}Q", *pointers) or bytes(8)))
        return {"ctx_id": self.context, "num_chunks": len(chunks), "chunks": array} | changes

    def submit(self, *chunks: tuple[int, bytes], **changes: int) -> int:
        return int(self.command(amdgpu.IOCTL_CS, **self.arguments(*chunks, **changes))["handle"])

    def wait(self, number: int, *, ip: int = COMPUTE, ring: int = 0, until: int = LATER) -> int:
        members = {"handle": number, "timeout": until, "ip_type": ip, "ring": ring, "ctx_id": self.context}
        return int(self.command(amdgpu.IOCTL_WAIT_CS, **members)["status"])

    def syncobj(self) -> int:
        return int(self.call(drm.IOCTL_SYNCOBJ_CREATE)["handle"])

    def write(self, value: int, offset: int = 0) -> WriteData:
        return WriteData(self.va[self.data] + offset, (value,))

    def value(self, offset: int = 0) -> int:
        return int(self.store(self.data).u32[offset // 4])

    def state(self) -> int:
        answer = self.command(amdgpu.IOCTL_CTX, op=amdgpu.AMDGPU_CTX_OP_QUERY_STATE2, ctx_id=self.context)
        return int(answer["state_flags"])


def sem(*handles: int) -> bytes:
    return struct.pack(f"<{len(handles)}I", *handles)


def points(*rows: tuple[int, int, int]) -> bytes:
    return b"".join(bytes(amdgpu.CS_CHUNK_SYNCOBJ.new(handle=h, flags=f, point=p).raw) for h, f, p in rows)


@contextlib.contextmanager
def running_client(*inject: str, **options: Any) -> Iterator[JobClient]:
    """A client whose jobs are run."""
    owner = SimMachine(MachineOptions(inject=inject, **options))
    try:
        client = JobClient(owner)
        yield client
        client.driver.exit()
        assert not client.gpu.memory.bos
    finally:
        owner.close()


@pytest.fixture
def idle() -> Iterator[JobClient]:
    """A client whose jobs are accepted and never run."""
    with open_machine(time_scale=1) as owner:
        yield JobClient(owner)


@pytest.mark.parametrize("ip", [COMPUTE, DMA])
def test_jobs_run_on_every_ring_and_their_numbers_count(ip: int) -> None:
    with running_client() as client:
        for ring in range(4 if ip == COMPUTE else 2):
            for turn in (1, 2, 3):
                value = 16 * ring + turn
                if ip == COMPUTE:
                    chunk = client.ib(client.write(value), ring=ring)
                else:
                    va = client.va[client.data]
                    words = [2, va & 0xFFFFFFFF, va >> 32, 0, value]  # WRITE linear
                    chunk = client.ib_of_words(words, ip=DMA, ring=ring)
                assert client.submit(chunk) == turn
                assert client.wait(turn, ip=ip, ring=ring) == 0
                assert client.value() == value
        assert client.gpu.findings == []


def pkt3(opcode: int, *body: int) -> list[int]:
    return [3 << 30 | (len(body) - 1) << 16 | opcode << 8, *body]


def test_graphics_ring_takes_what_programs_send_that_compute() -> None:
    with running_client() as client:
        state = [*pkt3(0x28, 0x81000000, 0x81000000), *pkt3(0x12, 0), *pkt3(0x69, 0x200, 7), *pkt3(0x42, 0)]
        state += [
            *pkt3(0x79, 0x242, 4),
            *pkt3(0x46, 0x40F),
            *pkt3(0xEF, 0),
        ]  # VGT_PRIMITIVE_TYPE; VS_PARTIAL_FLUSH
        inner = client.buffer()
        words = client.write(8).words(Generation.GFX12)
        client.store(inner).view[: 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)
        va = client.va[inner]
        number = client.submit(
            client.ib_of_words([*state, *pkt3(0x3F, va & 0xFFFFFFFF, va >> 32, len(words))], ip=GFX)
        )
        assert client.wait(number, ip=GFX) == 0 and client.value() == 8
        assert [item.rule for item in client.gpu.findings] == ["ib-alignment"]  # of 5 dwords


@pytest.mark.parametrize(("opcode", "name"), [(0x2D, "DRAW_INDEX_AUTO"), (0x4E, "DISPATCH_MESH_DIRECT")])
def test_drawing_is_refused_by_name(opcode: int, name: str) -> None:
    with running_client() as client:
        number = client.submit(client.ib_of_words(pkt3(opcode, 3, 2), ip=GFX))
        with pytest.raises(OSError) as caught:
            client.wait(number, ip=GFX)
        assert caught.value.errno == errno.ETIME
        assert any(f"{name} is not simulated: this device does not draw" in line for line in client.machine.dmesg)


def test_user_fence_is_written_at_the_end_of_its_job() -> None:
    with running_client() as client:
        page = client.buffer()
        for turn in (1, 2):
            client.submit(client.ib(client.write(1)), (amdgpu.AMDGPU_CHUNK_ID_FENCE, struct.pack("<2I", page, 64)))
            assert client.wait(turn) == 0
            assert client.store(page).u64[8] == turn


def test_job_waits_for_syncobjs_and_signals_others() -> None:
    with running_client() as client:
        before, after = client.syncobj(), client.syncobj()
        wait = amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT, points((before, WAIT_FOR_SUBMIT, 5))
        signal = amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, points((after, 0, 7))
        done: list[int] = []
        submitter = threading.Thread(
            target=lambda: done.append(client.submit(client.ib(client.write(9)), wait, signal))
        )
        submitter.start()
        time.sleep(0.05)
        assert not done and client.value() == 0  # nothing was submitted for point 5
        first = client.submit(
            client.ib(client.write(3, offset=4), ring=1),
            (amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL, points((before, 0, 5))),
        )
        submitter.join()
        handles, at = make_u32_array([after]), HostArray((7).to_bytes(8, "little"))
        client.call(
            drm.IOCTL_SYNCOBJ_TIMELINE_WAIT, handles=handles.address, points=at.address, count_handles=1,
            timeout_nsec=LATER,
        )  # fmt: skip
        assert (first, done) == (1, [1])
        assert (client.value(), client.value(4)) == (9, 3)


def test_dependencies_order_rings_of_one_context() -> None:
    with running_client() as client:
        flag = client.va[client.data] + 8
        first = client.submit(client.ib(WaitRegMem(flag, 1), client.write(1)))
        dep = amdgpu.CS_CHUNK_DEP.new(ip_type=COMPUTE, ring=0, ctx_id=client.context, handle=first)
        second = client.submit(
            client.ib(client.write(2), ring=1), (amdgpu.AMDGPU_CHUNK_ID_DEPENDENCIES, bytes(dep.raw))
        )
        now = time.monotonic_ns()
        assert client.wait(second, ring=1, until=now) == 1 and client.value() == 0
        client.store(client.data).u32[2] = 1
        assert client.wait(second, ring=1) == 0 and client.value() == 2


def test_jobs_of_a_context_run_in_order_and_two_at_a_time_on_the_hardware(idle: JobClient) -> None:
    for turn in range(5):
        assert idle.submit(idle.ib(Nop())) == turn + 1
    file = idle.driver.process.files[idle.drm]
    assert isinstance(file, DrmFile)
    [ring] = file.contexts[idle.context].rings.values()
    assert [job.number for job in ring.running] == [1, 2] and [job.number for job in ring.waiting] == [3, 4, 5]
    file.kernel_rings.interrupt(ring.hardware, 1)
    assert [job.number for job in ring.running] == [2, 3]
    file.kernel_rings.interrupt(ring.hardware, 3)  # the interrupt of job 2 was lost
    assert [job.number for job in ring.running] == [4, 5] and not ring.waiting
    file.kernel_rings.interrupt(ring.hardware, 77)  # of a packet in a client's buffer
    assert [job.number for job in ring.running] == [4, 5]


def test_a_context_remembers_its_last_jobs_and_submission_waits_for_older_ones() -> None:
    with running_client() as client:
        numbers = [client.submit(client.ib(Nop())) for _ in range(JOBS_KEPT + 3)]
        assert client.wait(numbers[-1]) == 0
        assert client.wait(1) == 0  # long ago: done
        with pytest.raises(OSError, match="no submission") as caught:
            client.wait(numbers[-1] + 1)
        assert caught.value.errno == errno.EINVAL


CHUNK_IB = amdgpu.AMDGPU_CHUNK_ID_IB
SHORT = CHUNK_IB, bytes(28)


@pytest.mark.parametrize(
    ("expected", "case"),
    [
        (errno.EINVAL, "no chunks"),
        (errno.EINVAL, "no context"),
        (errno.EFAULT, "chunks at a bad address"),
        (errno.EINVAL, "short chunk"),
        (errno.EINVAL, "unknown chunk"),
        (errno.EINVAL, "no indirect buffer"),
        (errno.EINVAL, "unknown ring"),
        (errno.EINVAL, "unknown IP"),
        (errno.EINVAL, "second instance"),
        (errno.EINVAL, "two rings"),
        (errno.EINVAL, "too many buffers"),
        (errno.EINVAL, "user fence in a large buffer"),
        (errno.EINVAL, "user fence past the page"),
        (errno.EINVAL, "two lists"),
        (errno.ENOENT, "unknown list"),
        (errno.ENOENT, "unknown buffer in a list"),
        (errno.EINVAL, "wait without a fence"),
        (errno.ENOENT, "wait for no syncobj"),
        (errno.EINVAL, "signal no syncobj"),
        (errno.EINVAL, "two chunks of signals"),
        (errno.EINVAL, "dependency on the future"),
        (errno.EINVAL, "shadow"),
    ],
)
def test_errno_of_submissions(expected: int, case: str, idle: JobClient) -> None:
    ib = idle.ib(Nop())
    entry = HostArray(struct.pack("<2I", idle.data, 0))
    unknown = HostArray(struct.pack("<2I", 99, 0))

    def listed(array: HostArray) -> tuple[int, bytes]:
        row = amdgpu.BO_LIST_IN.new(bo_number=1, bo_info_size=8, bo_info_ptr=array.address)
        return amdgpu.AMDGPU_CHUNK_ID_BO_HANDLES, bytes(row.raw)

    dep = amdgpu.CS_CHUNK_DEP.new(ip_type=COMPUTE, ctx_id=idle.context, handle=5)
    signal = amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_OUT, sem(idle.syncobj())
    large = idle.buffer(2 * PAGE)
    known = idle.command(
        amdgpu.IOCTL_BO_LIST, operation=0, bo_number=1, bo_info_size=8, bo_info_ptr=entry.address
    )["new_list_handle"]
    cases: dict[str, tuple[tuple[tuple[int, bytes], ...], dict[str, int]]] = {
        "no chunks": ((), {}),
        "no context": ((ib,), {"ctx_id": 77}),
        "chunks at a bad address": ((ib,), {"chunks": 8}),
        "short chunk": ((SHORT,), {}),
        "unknown chunk": ((ib, (99, bytes(4))), {}),
        "no indirect buffer": ((signal,), {}),
        "unknown ring": ((idle.ib(Nop(), ring=4),), {}),
        "unknown IP": ((idle.ib(Nop(), ip=3),), {}),
        "second instance": ((idle.ib(Nop(), ip_instance=1),), {}),
        "two rings": ((ib, idle.ib(Nop(), ring=1)), {}),
        "too many buffers": ((ib,) * (MAX_IBS[QueueKind.KERNEL_COMPUTE] + 1), {}),
        "user fence in a large buffer": ((ib, (amdgpu.AMDGPU_CHUNK_ID_FENCE, struct.pack("<2I", large, 0))), {}),
        "user fence past the page": (
            (ib, (amdgpu.AMDGPU_CHUNK_ID_FENCE, struct.pack("<2I", idle.data, 4092))),
            {},
        ),
        "two lists": ((ib, listed(entry)), {"bo_list_handle": known}),
        "unknown list": ((ib,), {"bo_list_handle": 77}),
        "unknown buffer in a list": ((ib, listed(unknown)), {}),
        "wait without a fence": ((ib, (amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_IN, sem(idle.syncobj()))), {}),
        "wait for no syncobj": ((ib, (amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_IN, sem(99))), {}),
        "signal no syncobj": ((ib, (amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_OUT, sem(99))), {}),
        "two chunks of signals": ((ib, signal, signal), {}),
        "dependency on the future": ((ib, (amdgpu.AMDGPU_CHUNK_ID_DEPENDENCIES, bytes(dep.raw))), {}),
        "shadow": ((ib, (amdgpu.AMDGPU_CHUNK_ID_CP_GFX_SHADOW, bytes(32))), {}),
    }
    chunks, changes = cases[case]
    assert idle.fails(amdgpu.IOCTL_CS, **idle.arguments(*chunks, **changes)) == expected
    assert idle.submit(ib, bo_list_handle=known) == 1  # nothing was left behind


@pytest.mark.parametrize("linux", ["6.8", "7.0"])
@pytest.mark.parametrize("kind", ["page fault", "illegal packet"])
def test_job_that_stops_makes_its_context_guilty(kind: str, linux: str) -> None:
    """Before 6.16 the whole GPU is reset, so that other contexts lose VRAM too."""
    with running_client(linux=linux) as client:
        other = client.command(amdgpu.IOCTL_CTX, op=amdgpu.AMDGPU_CTX_OP_ALLOC_CTX)["new_ctx_id"]
        bad = WriteData(0x7700_0000, (1,)) if kind == "page fault" else None
        chunk = client.ib(bad) if bad is not None else client.ib_of_words([0xC0005C00 | 0xEE << 8], ip=COMPUTE)
        number = client.submit(chunk)
        with pytest.raises(OSError) as caught:
            client.wait(number)
        assert caught.value.errno == errno.ETIME
        guilty = amdgpu.AMDGPU_CTX_QUERY2_FLAGS_GUILTY | amdgpu.AMDGPU_CTX_QUERY2_FLAGS_RESET
        assert client.state() & guilty == guilty
        lost = client.state() & amdgpu.AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST
        assert bool(lost) == (linux == "6.8")
        assert client.fails(amdgpu.IOCTL_CS, **client.arguments(client.ib(client.write(1)))) == errno.ECANCELED
        arguments = client.arguments(client.ib(client.write(5)), ctx_id=other)
        if lost:
            assert client.fails(amdgpu.IOCTL_CS, **arguments) == errno.ECANCELED
            return
        client.command(amdgpu.IOCTL_CS, **arguments)
        client.context = other
        assert client.wait(1) == 0 and client.value() == 5 and client.state() == client.state() & ~4


def test_job_that_never_ends_is_reset_at_the_time_out() -> None:
    with running_client(time_scale=0.002) as client:  # 2 s of Linux, times 30
        number = client.submit(client.ib(WaitRegMem(client.va[client.data], 1)))
        later = client.submit(client.ib(client.write(1)))
        for job, expected in ((number, errno.ETIME), (later, errno.ECANCELED)):
            with pytest.raises(OSError) as caught:
                client.wait(job)
            assert caught.value.errno == expected
        assert any("timeout, job 1" in line for line in client.machine.dmesg)


def test_freed_context_and_closed_file_leave_no_ring() -> None:
    with running_client() as client:
        client.submit(client.ib(client.write(1)))
        file = client.driver.process.files[client.drm]
        assert isinstance(file, DrmFile)
        client.command(amdgpu.IOCTL_CTX, op=amdgpu.AMDGPU_CTX_OP_FREE_CTX, ctx_id=client.context)
        client.context = client.command(amdgpu.IOCTL_CTX, op=amdgpu.AMDGPU_CTX_OP_ALLOC_CTX)["new_ctx_id"]
        number = client.submit(client.ib(client.write(2)))
        assert client.wait(number) == 0
        assert len(file.kernel_rings._rings) <= 2
        client.submit(client.ib(WaitRegMem(client.va[client.data], 77)))  # never ends


def test_wait_fences_for_any_and_all() -> None:
    with running_client() as client:
        flag = client.va[client.data] + 8
        slow = client.submit(client.ib(WaitRegMem(flag, 1)))
        quick = client.submit(client.ib(Nop(), ring=1))
        rows = [
            amdgpu.FENCE.new(ctx_id=client.context, ip_type=COMPUTE, ring=ring, seq_no=number)
            for ring, number in ((0, slow), (1, quick))
        ]
        array = HostArray(b"".join(bytes(row.raw) for row in rows))
        any_ = client.command(
            amdgpu.IOCTL_WAIT_FENCES, fences=array.address, fence_count=2, wait_all=0, timeout_ns=LATER
        )
        assert (any_["status"], any_["first_signaled"]) == (1, 1)
        late = client.command(
            amdgpu.IOCTL_WAIT_FENCES, fences=array.address, fence_count=2, wait_all=1, timeout_ns=1
        )
        assert late["status"] == 0
        client.store(client.data).u32[2] = 1
        whole = client.command(
            amdgpu.IOCTL_WAIT_FENCES, fences=array.address, fence_count=2, wait_all=1, timeout_ns=LATER
        )
        assert whole["status"] == 1


def test_exported_syncobjs_and_fences_come_back() -> None:
    with running_client() as client:
        source, target = client.syncobj(), client.syncobj()
        client.submit(client.ib(client.write(1)), (amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_OUT, sem(source)))
        shared = client.command(sim_drm.IOCTL_SYNCOBJ_HANDLE_TO_FD, handle=source)["fd"]
        again = client.command(sim_drm.IOCTL_SYNCOBJ_FD_TO_HANDLE, fd=shared)["handle"]
        fence = client.command(sim_drm.IOCTL_SYNCOBJ_HANDLE_TO_FD, handle=again, flags=1)["fd"]
        assert client.value() == 1  # the export of a fence waits for it
        client.command(sim_drm.IOCTL_SYNCOBJ_FD_TO_HANDLE, handle=target, fd=fence, flags=1)
        client.command(sim_drm.IOCTL_SYNCOBJ_TRANSFER, src_handle=target, dst_handle=source, dst_point=3)
        handles, at = make_u32_array([source]), HostArray(bytes(8))
        client.command(sim_drm.IOCTL_SYNCOBJ_QUERY, handles=handles.address, points=at.address, count_handles=1)
        assert at.bytes() == (3).to_bytes(8, "little")
        assert client.fails(sim_drm.IOCTL_SYNCOBJ_FD_TO_HANDLE, handle=target, fd=shared, flags=1) == errno.EINVAL
        assert client.fails(sim_drm.IOCTL_SYNCOBJ_HANDLE_TO_FD, handle=99) == errno.EINVAL


def test_metadata_of_buffers_and_waits_for_them() -> None:
    with running_client() as client:
        tag = {"handle": client.data, "op": amdgpu.AMDGPU_GEM_METADATA_OP_SET_METADATA, "tiling_info": 77}
        client.command(amdgpu.IOCTL_GEM_METADATA, **tag, data_size_bytes=4)
        read = client.command(
            amdgpu.IOCTL_GEM_METADATA, handle=client.data, op=amdgpu.AMDGPU_GEM_METADATA_OP_GET_METADATA
        )
        assert (read["tiling_info"], read["data_size_bytes"]) == (77, 4)
        assert client.fails(amdgpu.IOCTL_GEM_METADATA, **tag, data_size_bytes=257) == errno.EINVAL
        entry = HostArray(struct.pack("<2I", client.data, 0))
        row = amdgpu.BO_LIST_IN.new(bo_number=1, bo_info_size=8, bo_info_ptr=entry.address)
        client.submit(client.ib(client.write(6)), (amdgpu.AMDGPU_CHUNK_ID_BO_HANDLES, bytes(row.raw)))
        idle = client.command(amdgpu.IOCTL_GEM_WAIT_IDLE, handle=client.data, timeout=LATER)
        assert idle["status"] == 0 and client.value() == 6


@pytest.mark.parametrize(
    ("inject", "expected", "later"),
    [
        ("lost-doorbell@1", errno.ETIME, errno.ECANCELED),  # a ring that hangs: reset at the time-out
        ("no-interrupt@1", errno.ETIME, errno.ECANCELED),
        ("guilty-context@1", errno.ETIME, errno.ECANCELED),
        ("no-reset", 0, 0),  # nothing hangs, so nothing is reset
    ],
)
def test_injected_faults_of_a_ring(inject: str, expected: int, later: int) -> None:
    with running_client(inject, time_scale=0.002) as client:
        number = client.submit(client.ib(client.write(4)))
        if not expected:
            assert client.wait(number) == 0 and client.value() == 4
            return
        with pytest.raises(OSError) as caught:
            client.wait(number)
        assert caught.value.errno == expected
        assert client.fails(amdgpu.IOCTL_CS, **client.arguments(client.ib(client.write(5)))) == later


def test_failed_reset_loses_the_gpu() -> None:
    with running_client("no-reset", time_scale=0.002) as client:
        after = client.arguments(client.ib(client.write(5)))
        number = client.submit(client.ib(WriteData(0x7700_0000, (1,))))
        with pytest.raises(OSError) as caught:
            client.wait(number)
        assert caught.value.errno == errno.ETIME
        deadline = time.monotonic() + 10
        while not client.gpu.gone and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.fails(amdgpu.IOCTL_CS, **after) == errno.ENODEV


def test_allocation_without_memory_fails_by_name() -> None:
    with running_client("out-of-memory@2") as client:  # the client's data was the first
        assert (
            client.errno(uapi.IOCTL_GEM_CREATE, bo_size=PAGE, domains=amdgpu.AMDGPU_GEM_DOMAIN_GTT) == errno.ENOMEM
        )
        number = client.submit(client.ib(client.write(2)))
        assert client.wait(number) == 0 and client.value() == 2


SDMA_FENCE = 5 | 3 << 16
SDMA_POLL_EQUAL = 0x8 | 3 << 28 | 1 << 31  # of memory
USERPTR_VALIDATE, USERPTR_REGISTER = 1 << 2, 1 << 3  # AMDGPU_GEM_USERPTR_* in include/uapi/drm/amdgpu_drm.h


@pytest.mark.parametrize("kind", ["illegal packet", "page fault", "endless wait"])
def test_sdma_job_that_does_not_end_is_reset_and_its_context_guilty(kind: str) -> None:
    with running_client(time_scale=0.002) as client:
        flag = client.va[client.data] + 8
        words = {
            "illegal packet": [0xFF, 0, 0, 0],
            "page fault": [SDMA_FENCE, 0x7700_0000, 0, 1],
            "endless wait": [
                0x8 | 3 << 28 | 1 << 31,
                flag & 0xFFFFFFFF,
                flag >> 32,
                1,
                0xFFFFFFFF,
                0xFFF << 16 | 10,
            ],
        }[kind]
        number = client.submit(client.ib_of_words(words, ip=DMA))
        with pytest.raises(OSError) as caught:
            client.wait(number, ip=DMA)
        assert caught.value.errno == errno.ETIME
        assert client.state() & amdgpu.AMDGPU_CTX_QUERY2_FLAGS_GUILTY


def test_job_reads_and_writes_user_pages() -> None:
    with running_client() as client:
        pages = mmap.mmap(-1, 2 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        asked = {"addr": start, "size": 2 * PAGE, "flags": USERPTR_VALIDATE | USERPTR_REGISTER}
        handle = client.command(amdgpu.IOCTL_GEM_USERPTR, **asked)["handle"]
        va = 0x7_0000_0000
        client.call(uapi.IOCTL_GEM_VA, **client.mapping(handle, va, 2 * PAGE))
        pages[PAGE : PAGE + 4] = struct.pack("<I", 77)
        copy = [1, 3, 0, (va + PAGE) & 0xFFFFFFFF, va >> 32, client.va[client.data], client.va[client.data] >> 32]
        fence = [SDMA_FENCE, (va + 8) & 0xFFFFFFFF, va >> 32, 99]
        assert client.wait(client.submit(client.ib_of_words([*copy, *fence], ip=DMA)), ip=DMA) == 0
        assert client.value() == 77 and struct.unpack_from("<I", pages, 8) == (99,)


def test_queries_of_clock_power_state_and_vmid() -> None:
    with running_client() as client:
        clocks = [int.from_bytes(client.info(amdgpu.AMDGPU_INFO_TIMESTAMP, 8), "little") for _ in range(2)]
        assert 0 < clocks[0] < clocks[1]
        peak = amdgpu.AMDGPU_CTX_STABLE_PSTATE_PEAK
        context = {"ctx_id": client.context}
        client.command(amdgpu.IOCTL_CTX, op=amdgpu.AMDGPU_CTX_OP_SET_STABLE_PSTATE, flags=peak, **context)
        answer = client.command(amdgpu.IOCTL_CTX, op=amdgpu.AMDGPU_CTX_OP_GET_STABLE_PSTATE, **context)
        assert answer["new_ctx_id"] == peak  # out.pstate.flags is in the same place
        wrong = {"op": amdgpu.AMDGPU_CTX_OP_SET_STABLE_PSTATE, "flags": peak + 1}
        assert client.fails(amdgpu.IOCTL_CTX, **wrong, **context) == errno.EINVAL
        client.command(amdgpu.IOCTL_VM, op=amdgpu.AMDGPU_VM_OP_RESERVE_VMID)
        assert client.wait(client.submit(client.ib(client.write(4)))) == 0 and client.value() == 4
        client.command(amdgpu.IOCTL_VM, op=amdgpu.AMDGPU_VM_OP_UNRESERVE_VMID)
        assert client.fails(amdgpu.IOCTL_VM, op=9) == errno.EINVAL
