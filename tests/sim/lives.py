"""A short life on the simulated device, for tests that plant a fault in the runtime's tables: what is noticed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from types import ModuleType

import pytest
from sim.test_whole_device import FREE_IN_100_MS, Word, kfd_gpu, render_path, simulated_machine, submit, wait_until

from zinc_rt.host.errors import ZincError
from zinc_rt.kmd.events import EventKind
from zinc_rt.kmd.transport import Queue
from zinc_rt.kmd.uapi.structs import Ioctl, Struct
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.pm4.packets import ProtectedFenceSignal, ReleaseMem
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.machine import SimMachine

SECONDS = 0.2  # a healthy queue needs a hundredth of it


def _read_pointer(queue: Queue) -> int:
    assert queue.rptr.host is not None
    return ctypes.c_uint64.from_address(queue.rptr.host.address).value


def run_kfd_life() -> str:
    """Two queues, fences, read pointers, an event. Return "" on success, else the error and the findings."""
    with simulated_machine() as owner:
        try:
            seen = _kfd_life(owner)
        except (ZincError, OSError) as error:
            seen = str(error)
        return "; ".join(filter(None, [seen, *_findings(owner)]))


def _kfd_life(owner: SimMachine) -> str:
    with kfd_gpu(owner) as gpu:
        fence = Word(gpu)
        first, second = (gpu.create_queue(ring_bytes=size) for size in (1 << 16, 1 << 15))
        for value, queue in ((7, first), (8, second)):
            end = submit(queue, ReleaseMem(address=fence.va, data=value))
            if not fence.wait_for_value(value, SECONDS):
                return hang_reason(owner.dmesg) or f"fence {value} was never written"
            if not wait_until(SECONDS, lambda: _read_pointer(queue) == end):  # noqa: B023, asked at once
                return f"the read pointer stands at {_read_pointer(queue)} after {end} dwords"
        event = gpu.events.create(EventKind.SIGNAL)
        number = event.event_id
        signal = ReleaseMem(event.slot_va, number, data_sel=2, int_sel=2, int_ctxid=number)
        submit(first, signal)
        if not gpu.events.wait([event], SECONDS):
            return "the event was never signalled"
    return ""


def run_user_queue_life() -> str:
    """The same for user queues: memory fences and kernel fences."""
    with simulated_machine(linux=FREE_IN_100_MS) as owner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(UserqGpu.settle, "__defaults__", (SECONDS,))  # page tables that never come
        try:
            seen = _user_queue_life(owner)
        except (ZincError, OSError) as error:
            seen = str(error)
        return "; ".join(filter(None, [seen, *_findings(owner)]))


def _user_queue_life(owner: SimMachine) -> str:
    with UserqGpu(driver := SimDriver(owner), render_path(driver)) as gpu:
        fence = Word(gpu)
        queues = [gpu.create_queue(ring_bytes=1 << 16) for _ in range(2)]
        for value, queue in enumerate(queues, 3):
            syncobj = gpu.create_syncobj(f"done {value}")
            submit(queue, ReleaseMem(address=fence.va, data=value), ProtectedFenceSignal())
            gpu.signal(queue, syncobjs=[syncobj], writes=[fence.buffer])
            if not fence.wait_for_value(value, SECONDS):
                return hang_reason(owner.dmesg) or f"fence {value} was never written"
            if not syncobj.wait(SECONDS):
                return f"sync object {value} was never signalled"
    return ""


def _findings(owner: SimMachine) -> list[str]:
    return [f"{finding.rule}: {finding.sentence}" for finding in owner.findings]


def hang_reason(dmesg: list[str]) -> str:
    return next((line for line in dmesg if "hung" in line or "page fault" in line), "")


Swap = tuple[str, str]


def list_swaps(struct: Struct) -> Iterator[Swap]:
    """Return pairs of members with equal width at different offsets."""
    for one, other in combinations(struct.fields, 2):
        same_width = struct.fields[one].size_bytes == struct.fields[other].size_bytes
        if same_width and struct.offsets[one] != struct.offsets[other]:
            yield one, other


def swap_members(struct: Struct, swap: Swap) -> Struct:
    places = {swap[0]: struct.offsets[swap[1]], swap[1]: struct.offsets[swap[0]]}
    fields = [replace(f, at=places.get(name, struct.offsets[name])) for name, f in struct.fields.items()]
    return Struct(struct.c_name, *fields)


def plant_struct(patch: pytest.MonkeyPatch, module: ModuleType, name: str, value: Struct) -> None:
    """The struct `name` of that uapi module in the runtime, and the ioctl that uses it."""
    right = getattr(module, name)
    for key, item in list(vars(module).items()):
        if isinstance(item, Ioctl) and item.struct is right:
            patch.setattr(module, key, Ioctl(item.name, item.direction, item.type_, item.number, value))
    patch.setattr(module, name, value)


def lives_without_findings(
    run: Callable[[], str], module: ModuleType, name: str, harmless: frozenset[Swap]
) -> list[Swap]:
    """Return the swaps of two members that a run on the device did not detect."""
    struct = getattr(module, name)
    unseen = []
    for swap in set(list_swaps(struct)) - harmless:
        with pytest.MonkeyPatch.context() as patch:
            plant_struct(patch, module, name, swap_members(struct, swap))
            if not run():
                unseen.append(swap)
    return unseen
