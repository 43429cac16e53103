"""The declarative struct layer: what a wrong declaration, a foreign size or an array in host memory does."""

from __future__ import annotations

import ctypes

import pytest

from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.kmd.uapi.structs import Struct, encode_ioctl, u32, u64


def test_fields_missing_from_an_older_kernel_read_as_zero() -> None:
    old = bytearray(kfd.CREATE_QUEUE.new(ring_size=4096, queue_id=7).raw[:88])  # before interface 1.17
    record = kfd.CREATE_QUEUE.read(old)
    assert record["ring_size"] == 4096 and record["sdma_engine_id"] == 0


def test_request_number_matches_the_header() -> None:
    assert encode_ioctl("rw", "K", 0x02, 88) == 0xC0584B02
    assert kfd.IOCTLS["K", 0x02] is kfd.IOC_CREATE_QUEUE


def test_unknown_names_and_invalid_values_are_rejected() -> None:
    with pytest.raises(KeyError):
        kfd.CREATE_QUEUE.new(ring_sise=4096)
    with pytest.raises(ValueError, match="ring_size"):
        kfd.CREATE_QUEUE.new(ring_size=1 << 32)
    with pytest.raises(ValueError, match="24 bytes"):
        kfd.WAIT_EVENTS.read(bytes(24)).__class__(kfd.WAIT_EVENTS, bytearray(23))
    with pytest.raises(ValueError, match="not aligned"):
        Struct("struct wrong", u32("a"), u64("b", at=4))


def test_host_arrays_keep_their_address_and_see_later_writes() -> None:
    array = HostArray(bytes(8))
    ctypes.memmove(array.address, b"seen now", 8)
    assert array.bytes() == b"seen now"
