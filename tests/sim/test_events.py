"""KFD events: slots, waiting, auto-reset, ages, exceptions."""

from __future__ import annotations

import errno
import threading
import time

import pytest
from sim.device import PAGE, Client, open_client

from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import make_record_array as array_of
from zinc_rt.sim.driver.event_table import UNSIGNALED
from zinc_rt.sim.interfaces import AccessKind, Fault, QueueState

COMPLETE, TIMEOUT = kfd.KFD_IOC_WAIT_RESULT_COMPLETE, kfd.KFD_IOC_WAIT_RESULT_TIMEOUT


def set_event(c: Client, event_id: int) -> None:
    c.call(kfd.IOC_SET_EVENT, event_id=event_id)


def test_poll_times_out_then_completes_and_consumes_the_event() -> None:
    with open_client() as c:
        event_id = c.event()["event_id"]
        assert c.wait(event_id)[0] == TIMEOUT
        set_event(c, event_id)
        assert c.wait(event_id)[0] == COMPLETE
        assert c.wait(event_id)[0] == TIMEOUT


def test_event_without_auto_reset_stays_set_until_reset() -> None:
    with open_client() as c:
        event_id = c.event(auto_reset=False)["event_id"]
        set_event(c, event_id)
        assert c.wait(event_id)[0] == c.wait(event_id)[0] == COMPLETE
        c.call(kfd.IOC_RESET_EVENT, event_id=event_id)
        assert c.wait(event_id)[0] == TIMEOUT


def test_wait_for_any_and_all_events() -> None:
    with open_client() as c:
        first, second = (c.event()["event_id"] for _ in range(2))
        set_event(c, second)
        assert c.wait(first, second)[0] == COMPLETE
        set_event(c, second)
        assert c.wait(first, second, wait_all=True, timeout_ms=5)[0] == TIMEOUT


def test_wakeup_of_a_waiter_clears_an_auto_reset_event() -> None:
    with open_client() as c:
        event_id = c.event()["event_id"]
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(c.wait(event_id, timeout_ms=5000)[0]))
        thread.start()
        time.sleep(0.05)
        set_event(c, event_id)
        thread.join(5)
        assert results == [COMPLETE] and c.wait(event_id)[0] == TIMEOUT


def test_destroying_an_event_ends_its_wait_with_eio() -> None:
    with open_client() as c:
        event_id = c.event()["event_id"]
        errors: list[int | None] = []

        def wait_for_event() -> None:
            try:
                c.wait(event_id, timeout_ms=5000)
            except OSError as error:
                errors.append(error.errno)

        thread = threading.Thread(target=wait_for_event)
        thread.start()
        time.sleep(0.05)
        c.call(kfd.IOC_DESTROY_EVENT, event_id=event_id)
        thread.join(5)
        assert errors == [errno.EIO]


def test_interrupt_signals_the_written_slot_and_resets_it() -> None:
    with open_client() as c:
        page = c.alloc(0x8000)
        event_id = c.event(page=page["handle"])["event_id"]
        other = c.event()["event_id"]
        c.queue()
        hardware = c.gpu.on_hardware[0].queue
        host = c.host(page).view.cast("Q")
        c.gpu.interrupt(hardware, event_id)
        assert c.wait(event_id)[0] == TIMEOUT  # an untouched slot signals nothing
        host[event_id] = event_id
        c.gpu.interrupt(hardware, event_id)
        assert c.wait(event_id)[0] == COMPLETE and host[event_id] == UNSIGNALED
        host[event_id] = event_id
        c.gpu.interrupt(hardware, other)  # a wrong context id: all slots are scanned
        assert c.wait(event_id)[0] == COMPLETE and c.wait(other)[0] == TIMEOUT


@pytest.mark.rest
def test_process_is_limited_to_4095_events() -> None:
    with open_client() as c:
        c.event(page=c.alloc(0x8000)["handle"])
        state = c.driver.process.kfd
        assert state is not None
        for _ in range(4094):
            state.events.create(kfd.KFD_IOC_EVENT_SIGNAL, True)
        assert c.errno(kfd.IOC_CREATE_EVENT) == errno.ENOSPC


def test_event_age_satisfies_a_wait_and_is_returned() -> None:
    with open_client() as c:
        event_id = c.event(auto_reset=False)["event_id"]
        set_event(c, event_id)
        c.call(kfd.IOC_RESET_EVENT, event_id=event_id)
        records = kfd.EVENT_DATA.new(event_id=event_id, last_event_age=1)
        array = array_of([records])
        result = c.call(kfd.IOC_WAIT_EVENTS, events_ptr=array.address, num_events=1)
        assert result["wait_result"] == COMPLETE and array.record(kfd.EVENT_DATA)["last_event_age"] == 2


@pytest.mark.parametrize(
    ("reason", "field"), [("not present", "not_present"), ("read only", "read_only"), ("no execute", "no_execute")]
)
def test_fault_signals_memory_event_with_page_and_evicts_other_queues(reason: str, field: str) -> None:
    with open_client() as c:
        memory = c.event(kfd.KFD_IOC_EVENT_MEMORY)["event_id"]
        c.queue()
        c.queue()
        first, second = (item.queue for item in c.gpu.on_hardware)
        first.state = QueueState.HUNG
        c.gpu.vm_fault(first, Fault(0x1234567, AccessKind.WRITE, reason))
        result, array = c.wait(memory)
        record = array.record(kfd.EVENT_DATA)
        assert result == COMPLETE and record["va"] == 0x1234000 and record["memory_gpu_id"] == c.gpu_id
        assert record[field] == 1 and second.state is QueueState.EVICTED


def test_gpu_reset_notifies_every_process_and_only_close_works_after() -> None:
    with open_client(linux="6.12") as c:
        victim = Client(c.machine)
        event_ids = [item.event(kfd.KFD_IOC_EVENT_HW_EXCEPTION)["event_id"] for item in (c, victim)]
        queue_id = c.queue()["queue_id"]
        c.gpu.cp.stuck = True  # type: ignore[attr-defined]
        assert c.errno(kfd.IOC_DESTROY_QUEUE, queue_id=queue_id) == errno.ETIME
        assert c.errno(kfd.IOC_DESTROY_QUEUE, queue_id=queue_id) == errno.EINVAL  # gone all the same
        for item, event_id in zip((c, victim), event_ids, strict=True):
            result, array = item.wait(event_id)
            assert result == COMPLETE and array.record(kfd.EVENT_DATA)["memory_lost"] == 1
            arguments = {"va_addr": PAGE * 64, "size": PAGE, "gpu_id": c.gpu_id, "flags": 2}
            assert item.errno(kfd.IOC_ALLOC_MEMORY_OF_GPU, **arguments) == errno.EIO
        victim.driver.exit()
        time.sleep(0.02)  # the reset takes a second, scaled
        fresh = Client(c.machine)
        fresh.alloc(PAGE)
        fresh.driver.exit()


def test_queue_reset_notifies_only_its_owner() -> None:
    with open_client(linux="7.0") as c:
        bystander = Client(c.machine)
        mine, others = (item.event(kfd.KFD_IOC_EVENT_HW_EXCEPTION)["event_id"] for item in (c, bystander))
        queue_id = c.queue()["queue_id"]
        c.gpu.cp.stuck = True  # type: ignore[attr-defined]
        assert c.errno(kfd.IOC_DESTROY_QUEUE, queue_id=queue_id) == errno.ETIME
        assert c.wait(mine)[0] == COMPLETE and bystander.wait(others)[0] == TIMEOUT
        bystander.driver.exit()
