"""A queue that the kernel refuses: P15 names the part of the request that is wrong, by substitution."""

from __future__ import annotations

from dataclasses import replace

import fake_probes as fake
import pytest

from zinc_rt.cli.report import Result
from zinc_rt.kmd import kfd_queue
from zinc_rt.kmd.cwsr import CwsrSizes, list_cwsr_sizes
from zinc_rt.kmd.topology import TopologyNode
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.structs import StructBytes
from zinc_rt.probes.layout_differences import find_difference
from zinc_rt.probes.registry import PROBES, select_probes

RIGHT = kfd_queue._make_request


def run_p15() -> Result:
    return fake.run_probes(select_probes(PROBES, "P15"))["P15/t1"]


def change_request(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    """The runtime's request with wrong values in these fields."""

    def make_request(*given: object, **more: object) -> StructBytes:
        record = RIGHT(*given, **more)  # type: ignore[arg-type]
        for name, value in values.items():
            record[name] = value
        return record

    monkeypatch.setattr(kfd_queue, "_make_request", make_request)


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"eop_buffer_size": 8192}, "the EOP buffer: eop_buffer_size 0x2000 is rejected where 0x1000 is accepted"),
        ({"ring_size": 3000}, "the ring: ring_size 0xbb8 is rejected where 0x10000 is accepted"),
        ({"ring_size": 1 << 17}, "the ring: ring_size 0x20000 is rejected where 0x10000 is accepted"),
        ({"queue_priority": 16}, "the priority: queue_priority 0x10 is rejected where 0x7 is accepted"),
        ({"queue_percentage": 101}, "the percentage: queue_percentage 0x65 is rejected where 0x64 is accepted"),
        ({"queue_type": 99}, "the type: queue_type 0x63 is rejected where 0x0 is accepted"),
        ({"gpu_id": 1}, "the GPU: gpu_id 0x1 is rejected where"),
        ({"read_pointer_address": 0x1000}, "rptr: read_pointer_address 0x1000 is rejected where"),
        ({"ctx_save_restore_size": 4096}, "the context save area: ctx_save_restore_size 0x1000 is rejected where"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_invalid_field_is_reported_with_accepted_values(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, int], message: str
) -> None:
    change_request(monkeypatch, **values)
    result = run_p15()
    assert result.status == "fail" and message in result.reason, result.reason
    assert result.reason.count("is rejected where") == 1, "nothing else is accused"
    assert "a part of the request" in result.cause or "context save area" in result.cause


def test_two_invalid_fields_are_both_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    change_request(monkeypatch, queue_priority=16, eop_buffer_size=8192)
    reason = run_p15().reason
    assert "queue_priority 0x10" in reason and "eop_buffer_size 0x2000" in reason
    assert reason.count("is rejected where") == 2


def test_buffer_of_wrong_size_is_reported_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kfd_queue, "PAGE_BYTES", 8192)
    reason = run_p15().reason
    assert "rptr: read_pointer_address" in reason and "wptr: write_pointer_address" in reason
    assert reason.count("is rejected where") == 2


def test_wrong_control_stack_size_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorten_save_area(node: TopologyNode) -> tuple[CwsrSizes, ...]:
        return tuple(
            replace(cwsr_size, control_stack_bytes=cwsr_size.control_stack_bytes - 4096)
            for cwsr_size in list_cwsr_sizes(node)
        )

    monkeypatch.setattr(kfd_queue, "list_cwsr_sizes", shorten_save_area)
    result = run_p15()
    assert "the context save area: ctl_stack_size" in result.reason and result.reason.count("is rejected") == 1


@pytest.mark.parametrize(
    ("name", "probe", "fields", "message"),
    [
        ("CREATE_QUEUE", "P15", ("read_pointer_address", "ring_base_address"), "ring_base_address at offset 16"),
        ("ALLOC_MEMORY_OF_GPU", "P09", ("gpu_id", "flags"), "gpu_id at offset 36, in kfd_ioctl.h it is at 32"),
    ],
)
def test_layout_mismatch_is_reported_by_member_and_offset(
    monkeypatch: pytest.MonkeyPatch, name: str, probe: str, fields: tuple[str, str], message: str
) -> None:
    struct = getattr(kfd, name)
    offsets = dict(struct.offsets)
    offsets[fields[0]], offsets[fields[1]] = offsets[fields[1]], offsets[fields[0]]
    monkeypatch.setattr(struct, "offsets", offsets)
    (result,) = fake.run_probes(select_probes(PROBES, probe)).values()
    assert result.status == "fail" and f"the runtime's layout of AMDKFD_IOC_{name}: " in result.cause, result.cause
    assert message in result.cause and "zinc_rt/kmd/uapi" in result.advice


def test_wrong_ioctl_number_is_reported() -> None:
    assert find_difference(kfd.IOC_CREATE_EVENT.name) == "" and find_difference("open /dev/kfd") == ""
    wrong = replace(kfd.IOC_CREATE_EVENT, number=kfd.IOC_DESTROY_EVENT.number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(kfd.IOCTLS, ("K", 8), wrong)
        assert "as number 0x9, kfd_ioctl.h has 0x8" in find_difference(wrong.name)
