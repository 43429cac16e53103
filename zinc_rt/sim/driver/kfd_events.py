"""KFD ioctls on events. Errnos: kfd_chardev.c, kfd_events.c."""

from __future__ import annotations

import errno

from zinc_rt.sim.driver.event_table import EventWaiter
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.driver.kfd_memory import MMAP_TYPE_EVENTS
from zinc_rt.sim.memory.buffers import SharedStore
from zinc_rt.sim.tables import kfd

AGE_MINOR = 14
_DATA_BYTES = {kfd.KFD_IOC_EVENT_MEMORY: 32, kfd.KFD_IOC_EVENT_HW_EXCEPTION: 16}


def create(call: IoctlCall) -> None:
    process, arg = call.kfd, call.arg
    if arg["event_page_offset"]:
        _take_page(call)
    event = process.events.create(arg["event_type"], bool(arg["auto_reset"]))
    arg["event_id"] = event.event_id
    if event.kind in (kfd.KFD_IOC_EVENT_SIGNAL, kfd.KFD_IOC_EVENT_DEBUG_EVENT):
        arg["event_trigger_data"] = arg["event_slot_index"] = event.event_id
        arg["event_page_offset"] = MMAP_TYPE_EVENTS


def _take_page(call: IoctlCall) -> None:
    process, handle = call.kfd, call.arg["event_page_offset"]
    if process.events.page is not None:
        raise OSError(errno.EINVAL, "an event page is already set")
    gpu = process.gpu(handle >> 32)
    if gpu.injector.is_due("event-page-refused"):
        raise OSError(errno.EINVAL, "injected")
    process.bound(gpu, errno.ENODEV)
    buffer = process.buffer(handle, errno.EINVAL)
    page = buffer.bo.host_view
    if not isinstance(page, SharedStore):
        raise OSError(errno.EINVAL, "the event page is not a buffer of this process")
    process.events.use_page(page, handle)


def destroy(call: IoctlCall) -> None:
    call.kfd.events.destroy(call.arg["event_id"])


def set_event(call: IoctlCall) -> None:
    call.kfd.events.set(call.arg["event_id"])


def reset(call: IoctlCall) -> None:
    call.kfd.events.reset(call.arg["event_id"])


def wait(call: IoctlCall) -> None:
    arg = call.arg
    arg["wait_result"] = kfd.KFD_IOC_WAIT_RESULT_FAIL
    address, size = arg["events_ptr"], kfd.EVENT_DATA.size_bytes
    records = call.read_records(address, arg["num_events"], kfd.EVENT_DATA)
    ages = call.machine.linux.kfd_minor >= AGE_MINOR
    asked = [(record["event_id"], record["last_event_age"] if ages else 0) for record in records]
    wait_all, alive = bool(arg["wait_for_all"]), call.process.check_uninterrupted
    result, entries = call.kfd.events.wait(asked, wait_all, arg["timeout"], alive)
    if result == kfd.KFD_IOC_WAIT_RESULT_COMPLETE:
        for location, (record, entry) in enumerate(zip(records, entries, strict=True)):
            if entry.activated:
                call.put(address + location * size, _copy_back(bytes(record.raw), entry))
    arg["wait_result"] = result


def _copy_back(raw: bytes, entry: EventWaiter) -> bytes:
    """Return the part of EVENT_DATA that the kernel copies back for this entry."""
    event = entry.event
    record = kfd.EVENT_DATA.read(raw)
    if event.kind in _DATA_BYTES:
        for name, value in event.data.items():
            record[name] = value
        return bytes(record.raw[: _DATA_BYTES[event.kind]])
    if event.kind == kfd.KFD_IOC_EVENT_SIGNAL and entry.age_asked:
        record["last_event_age"] = event.age
        return bytes(record.raw[:8])
    return b""
