"""The declarative struct layer: what a wrong declaration, a foreign size or a pointed-to array does."""

from __future__ import annotations

import pytest

from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.kmd.uapi.host_memory import HostArray, read_host, u32_array, write_host
from zinc_rt.kmd.uapi.structs import Struct, ioc, request_key, request_size_bytes, u32, u64


def test_an_older_callers_struct_is_read_with_zeros_and_written_back_in_its_own_length() -> None:
    old = bytearray(kfd.CREATE_QUEUE.new(ring_size=4096, queue_id=7).raw[:88])  # before interface 1.17
    record = kfd.CREATE_QUEUE.read(old)
    assert record["ring_size"] == 4096 and record["sdma_engine_id"] == 0
    record["queue_id"] = 9
    record["sdma_engine_id"] = 0xFFFFFFFF
    record.write_back(old)
    assert len(old) == 88 and kfd.CREATE_QUEUE.read(old)["queue_id"] == 9


def test_a_newer_callers_struct_keeps_what_this_one_does_not_know() -> None:
    newer = bytearray(kfd.GET_VERSION.size_bytes + 8)
    newer[-8:] = b"untouchd"
    record = kfd.GET_VERSION.read(newer)
    record["minor_version"] = 23
    record.write_back(newer)
    assert newer[-8:] == b"untouchd" and newer[4] == 23


def test_a_request_is_dispatched_on_type_and_number_not_on_its_size() -> None:
    old = ioc("rw", "K", 0x02, 88)
    assert old == 0xC0584B02
    assert kfd.IOCTLS[request_key(old)] is kfd.IOC_CREATE_QUEUE
    assert request_size_bytes(old) == 88


def test_unknown_names_and_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(KeyError):
        kfd.CREATE_QUEUE.new(ring_sise=4096)
    with pytest.raises(ValueError, match="ring_size"):
        kfd.CREATE_QUEUE.new(ring_size=1 << 32)
    with pytest.raises(ValueError, match="24 bytes"):
        kfd.WAIT_EVENTS.read(bytes(24)).__class__(kfd.WAIT_EVENTS, bytearray(23))
    with pytest.raises(ValueError, match="not aligned"):
        Struct("struct wrong", u32("a"), u64("b", at=4))


def test_pointed_arrays_follow_the_request() -> None:
    ids = u32_array([0x1111, 0x2222])
    request = kfd.MAP_MEMORY_TO_GPU.new(device_ids_array_ptr=ids.address, n_devices=2)
    (array,) = kfd.MAP_MEMORY_TO_GPU.pointed(request)
    assert (array.address, array.size_bytes) == (ids.address, 8)
    assert read_host(array.address, array.size_bytes) == b"\x11\x11\0\0\x22\x22\0\0"


def test_a_cu_mask_is_counted_in_bits() -> None:
    mask = u32_array([0xFFFFFFFF, 0xFFFFFFFF])
    (array,) = kfd.SET_CU_MASK.pointed(kfd.SET_CU_MASK.new(num_cu_mask=64, cu_mask_ptr=mask.address))
    assert array.size_bytes == 8


def test_an_empty_or_null_array_is_no_array() -> None:
    assert amdgpu.USERQ_WAIT.pointed(amdgpu.USERQ_WAIT.new(out_fences=0x1000)) == []
    assert drm.VERSION.pointed(drm.VERSION.new(name_len=8)) == []


def test_host_arrays_keep_their_address_and_see_what_is_written_there() -> None:
    array = HostArray(bytes(8))
    write_host(array.address, (5).to_bytes(8, "little"))
    assert array.u64() == (5,)
    assert array.u32() == (5, 0)


@pytest.mark.parametrize("module", (drm, amdgpu, kfd))
def test_every_user_pointer_has_its_array_declared(module: object) -> None:
    """What a driver in another process would not carry along. Each exception says why."""
    for struct in module.STRUCTS:  # type: ignore[attr-defined]
        declared = {pointer.field for pointer in struct.pointers}
        looks_like = {
            n
            for n in struct.fields
            if n.endswith(("_ptr", "_pointer", "_handles")) and not n.startswith(("num_", "count_"))
        }
        assert looks_like - declared <= NOT_POINTERS, struct


NOT_POINTERS = {
    "addr_ptr",  # GEM_MMAP's result: an mmap offset
    "content_ptr",  # debugger calls that always fail
}
