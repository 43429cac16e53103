"""Driver side and command processor together, through the transports that products use: T1 and T2."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import time
from collections.abc import Callable, Iterator

import pytest

from zinc_rt.kmd.discover import find_gpus
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.kfd import KfdGpu, KfdProcess
from zinc_rt.kmd.transport import Placement, Queue
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.pm4 import Generation
from zinc_rt.pm4.packets.control import IndirectBuffer
from zinc_rt.pm4.packets.data import WriteData
from zinc_rt.pm4.packets.sync import ReleaseMem
from zinc_rt.pm4.packets.userq import ProtectedFenceSignal
from zinc_rt.sim.cp.work import SLOW_FENCE_SECONDS
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import MachineOptions

BAD_PACKET = 0xC000F200  # an opcode nobody has
POISON = 0xDEADBEEF
UNMAPPED = 0x6000_0000_0000

FREE_IN_100_MS = "6.18"  # the last Linux in which freeing a queue with an unfinished fence returns


@contextlib.contextmanager
def simulated_machine(*inject: str, linux: str = "7.0", chip: str = "r9700") -> Iterator[SimMachine]:
    machine = SimMachine(MachineOptions(chip, linux, inject, time_scale=0.02))
    try:
        yield machine
    finally:
        machine.close()


@contextlib.contextmanager
def kfd_gpu(owner: SimMachine) -> Iterator[KfdGpu]:
    driver = SimDriver(owner)
    node = find_gpus(driver).gpus[0].node
    assert node is not None
    with KfdProcess(driver) as process:
        yield process.open_gpu(node)


def submit(queue: Queue, *packets: object) -> int:
    """Write, publish, ring. Returns the write pointer."""
    generation = Generation(queue.generation[0])
    words: list[int] = []
    for packet in packets:
        words += [packet] if isinstance(packet, int) else packet.words(generation)  # type: ignore[attr-defined]
    wptr = ctypes.c_uint64.from_address(queue.wptr.host.address)
    ring = (ctypes.c_uint32 * queue.ring_dw).from_address(queue.ring.host.address)
    index = wptr.value
    for location, word in enumerate(words):
        ring[(index + location) % queue.ring_dw] = word
    wptr.value = index + len(words)
    ctypes.c_uint64.from_address(queue.doorbell_address).value = index + len(words)
    return index + len(words)


def wait_until(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


class Word:
    """A poisoned dword that the GPU writes."""

    def __init__(self, gpu: KfdGpu | UserqGpu, name: str = "fence") -> None:
        self.buffer = gpu.alloc(4096, Placement.GTT, name)
        self._value = ctypes.c_uint32.from_address(self.buffer.host.address)
        self._value.value = POISON

    @property
    def va(self) -> int:
        return self.buffer.gpu_va

    @property
    def value(self) -> int:
        return self._value.value

    def wait_for_value(self, value: int, seconds: float = 5) -> bool:
        return wait_until(seconds, lambda: self.value == value)


def assert_alive(owner: SimMachine) -> bool:
    """A fresh process's queue writes a fence."""
    with kfd_gpu(owner) as gpu:
        fence, queue = Word(gpu), gpu.create_queue(ring_bytes=1 << 16)
        submit(queue, ReleaseMem(address=fence.va, data=7))
        return fence.wait_for_value(7)


@pytest.mark.parametrize("chip", ["r9700", "gfx1200", "gfx1100", "gfx1102", "gfx1150", "gfx1151"])
@pytest.mark.parametrize("linux", ["6.12", "6.18.y", "7.0"])
def test_fence_completes_on_every_chip_and_kernel(chip: str, linux: str) -> None:
    with simulated_machine(chip=chip, linux=linux) as owner:
        assert assert_alive(owner)
        assert not owner.findings and not owner.gpus[0].memory.bos


def test_write_to_unmapped_page_faults_and_next_process_works() -> None:
    with simulated_machine() as owner:
        with kfd_gpu(owner) as gpu:
            fence, queue = Word(gpu), gpu.create_queue(ring_bytes=1 << 16)
            submit(queue, WriteData(address=UNMAPPED + 0x128, data=(1,)), ReleaseMem(address=fence.va, data=7))
            assert wait_until(5, lambda: any("page fault" in line for line in owner.dmesg))
            assert not fence.wait_for_value(7, seconds=0.1)
            queue.destroy()
        assert any(f"0x{UNMAPPED:016x}" in line for line in owner.dmesg)
        assert assert_alive(owner)


def test_destroying_a_hung_queue_resets_only_that_queue() -> None:
    with simulated_machine() as owner, kfd_gpu(owner) as bystander:
        fence, living = Word(bystander), bystander.create_queue(ring_bytes=1 << 16)
        with kfd_gpu(owner) as gpu:
            queue = gpu.create_queue(ring_bytes=1 << 16)
            submit(queue, BAD_PACKET, 0)
            assert wait_until(5, lambda: any("hung" in line for line in owner.dmesg))
            with pytest.raises(DriverError) as caught:
                queue.destroy()
            assert caught.value.errno == errno.ETIME
        submit(living, ReleaseMem(address=fence.va, data=9))
        assert fence.wait_for_value(9)


def test_old_kernel_resets_the_whole_gpu_for_every_process() -> None:
    with simulated_machine(linux="6.12") as owner:
        with contextlib.ExitStack() as clients:
            gpu, bystander = (clients.enter_context(kfd_gpu(owner)) for _ in range(2))
            queue = gpu.create_queue(ring_bytes=1 << 16)
            submit(queue, BAD_PACKET, 0)
            assert wait_until(5, lambda: any("hung" in line for line in owner.dmesg))
            with pytest.raises(DriverError):
                queue.destroy()
            with pytest.raises(DriverError) as caught:
                bystander.create_queue(ring_bytes=1 << 16)
            assert caught.value.errno == errno.EIO
        assert wait_until(5, lambda: not owner.gpus[0].resetting)
        assert assert_alive(owner)


def test_queue_of_a_dying_process_does_not_affect_others() -> None:
    with simulated_machine() as owner:
        victim = SimDriver(owner)
        node = find_gpus(victim).gpus[0].node
        assert node is not None
        gpu = KfdProcess(victim).open_gpu(node)
        submit(gpu.create_queue(ring_bytes=1 << 16), *[0xFFFF1000] * 1000)
        victim.exit()
        assert assert_alive(owner) and len(owner.processes) == 1  # of alive(), closed but not ended


@pytest.mark.parametrize(
    ("inject", "written"), [((), True), (("lost-doorbell",), False), (("fence-never-written",), False)]
)
def test_lost_fence_or_doorbell_is_simulated(inject: tuple[str, ...], written: bool) -> None:
    with simulated_machine(*inject) as owner, kfd_gpu(owner) as gpu:
        fence, queue = Word(gpu), gpu.create_queue(ring_bytes=1 << 16)
        end = submit(queue, ReleaseMem(address=fence.va, data=7))
        rptr = ctypes.c_uint64.from_address(queue.rptr.host.address)
        assert fence.wait_for_value(7, seconds=5 if written else 0.1) == written
        assert wait_until(1, lambda: rptr.value == (0 if inject == ("lost-doorbell",) else end))


def render_path(driver: Driver) -> str:
    return find_gpus(driver).gpus[0].render_path


def test_slow_fence_arrives_late_and_hung_queue_leaves_others_alone() -> None:
    with simulated_machine("slow-fence@1", "hung-queue@3") as owner, kfd_gpu(owner) as gpu:
        fence, other = Word(gpu), Word(gpu)
        first, second = gpu.create_queue(ring_bytes=1 << 14), gpu.create_queue(ring_bytes=1 << 14)
        started = time.monotonic()
        submit(first, ReleaseMem(address=fence.va, data=1))
        assert fence.wait_for_value(1, 10.0) and time.monotonic() - started >= SLOW_FENCE_SECONDS
        submit(first, ReleaseMem(address=fence.va, data=2))
        assert fence.wait_for_value(2, 10.0)
        submit(first, ReleaseMem(address=fence.va, data=3))  # the third doorbell
        submit(second, ReleaseMem(address=other.va, data=4))
        assert other.wait_for_value(4, 10.0) and not fence.wait_for_value(3, 0.05)
        assert any("injected: hung-queue" in line for line in owner.dmesg)


@pytest.mark.parametrize("inject", [(), ("fence-interrupt-lost",)])
def test_user_queue_kernel_fence(inject: tuple[str, ...]) -> None:
    with simulated_machine(*inject, linux=FREE_IN_100_MS) as owner:
        driver = SimDriver(owner)
        with UserqGpu(driver, render_path(driver)) as gpu:
            fence, queue = Word(gpu), gpu.create_queue(ring_bytes=1 << 16)
            syncobj = gpu.create_syncobj("done")
            submit(queue, ReleaseMem(address=fence.va, data=3), ProtectedFenceSignal())
            gpu.signal(queue, syncobjs=[syncobj])
            assert fence.wait_for_value(3)
            assert syncobj.wait(0.2) == (not inject)


def test_ib_without_inherited_vmid_faults() -> None:
    for inject, good in (((), True), (("vmid-not-inherited",), False)):
        with simulated_machine(*inject) as owner:
            driver = SimDriver(owner)
            with UserqGpu(driver, render_path(driver)) as gpu:
                fence, ib = Word(gpu), gpu.alloc(4096, Placement.GTT, "ib")
                words = ReleaseMem(address=fence.va, data=5).words(Generation.GFX12)
                ib.host.view[: 4 * len(words)] = b"".join(word.to_bytes(4, "little") for word in words)
                queue = gpu.create_queue(ring_bytes=1 << 16)
                submit(queue, IndirectBuffer(address=ib.gpu_va, size_dw=len(words), inherit_vmid=True))
                assert fence.wait_for_value(5, seconds=5 if good else 0.2) == good
                assert (gpu.fault() is None) == good


def test_waiting_for_page_tables_is_required() -> None:
    with simulated_machine("page-tables-late") as owner:
        driver = SimDriver(owner)
        with UserqGpu(driver, render_path(driver)) as gpu:
            fence, queue = Word(gpu), gpu.create_queue(ring_bytes=1 << 16)
            gpu.settle()
            submit(queue, ReleaseMem(address=fence.va, data=4))
            assert fence.wait_for_value(4)


@pytest.mark.parametrize(("inject", "satisfied"), [((), False), (("signal-before-wptr",), True)])
def test_signal_before_the_write_pointer_completes_too_early(inject: tuple[str, ...], satisfied: bool) -> None:
    with simulated_machine(*inject, "lost-doorbell", linux=FREE_IN_100_MS) as owner:
        driver = SimDriver(owner)
        with UserqGpu(driver, render_path(driver)) as gpu:
            queue, syncobj = gpu.create_queue(ring_bytes=1 << 16), gpu.create_syncobj("done")
            submit(queue, ProtectedFenceSignal())
            gpu.signal(queue, syncobjs=[syncobj])
            assert syncobj.wait(0.02) == satisfied


def test_rejected_wptr_is_einval() -> None:
    with simulated_machine("wptr-rejected") as owner:
        driver = SimDriver(owner)
        with UserqGpu(driver, render_path(driver)) as gpu, pytest.raises(DriverError) as caught:
            gpu.create_queue(ring_bytes=1 << 16)
        assert caught.value.errno == errno.EINVAL
