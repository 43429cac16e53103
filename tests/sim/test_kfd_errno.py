"""Each KFD ioctl with each bad argument: the kernel's errno. Rows follow reference tables of amdkfd."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from kmd import unsent_ioctls
from sim.device import GTT, PAGE, RING, VRAM, VRAM_PUBLIC, Client, client

from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import u32_array
from zinc_rt.kmd.uapi.structs import Ioctl, ioc

ENOTSUPP = 524
KERNEL_ADDRESS = 0xFFFF_8000_0000_0000
Change = Callable[[Client], dict[str, Any]] | dict[str, Any]


@dataclass(frozen=True)
class Row:
    command: Ioctl
    change: Change
    errno: int
    acquire: bool = True
    linux: str = "7.0"
    inject: tuple[str, ...] = ()


def queue(number: int, linux: str = "7.0", inject: tuple[str, ...] = (), **changes: Any) -> Row:
    return Row(kfd.IOC_CREATE_QUEUE, lambda c: c.queue_arguments(**changes), number, linux=linux, inject=inject)


def made(number: int, change: Callable[[Client], dict[str, Any]], linux: str = "7.0") -> Row:
    return Row(kfd.IOC_CREATE_QUEUE, change, number, linux=linux)


def other_ring(c: Client) -> dict[str, Any]:
    return c.queue_arguments(ring_base_address=c.alloc(2 * RING)["va_addr"])


def shifted_ring(c: Client) -> dict[str, Any]:
    arguments = c.queue_arguments()
    return arguments | {"ring_base_address": arguments["ring_base_address"] + PAGE, "ring_size": RING // 2}


def wptr_in_vram(c: Client) -> dict[str, Any]:
    return c.queue_arguments(write_pointer_address=c.alloc(PAGE, VRAM_PUBLIC)["va_addr"])


def wptr_of_sdma_in_vram(c: Client) -> dict[str, Any]:
    return wptr_in_vram(c) | {"queue_type": unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA}


def wptr_of_two_pages(c: Client) -> dict[str, Any]:
    return c.queue_arguments(write_pointer_address=c.alloc(2 * PAGE)["va_addr"])


def rptr_in_second_page(c: Client) -> dict[str, Any]:
    return c.queue_arguments(read_pointer_address=c.alloc(2 * PAGE)["va_addr"] + PAGE)


def eop_too_long(c: Client) -> dict[str, Any]:
    return c.queue_arguments(eop_buffer_address=c.alloc(2 * PAGE)["va_addr"])


def ctl_off_by_a_page(c: Client) -> dict[str, Any]:
    arguments = c.queue_arguments()
    return arguments | {"ctl_stack_size": arguments["ctl_stack_size"] + PAGE}


def save_area_small(c: Client) -> dict[str, Any]:
    arguments = c.queue_arguments()
    return arguments | {"ctx_save_restore_size": arguments["ctx_save_restore_size"] - PAGE}


def save_area_too_long(c: Client) -> dict[str, Any]:
    size = c.gpu.chip.cwsr().buffer_bytes(c.gpu.chip.cwsr().save_restore_bytes)
    return c.queue_arguments(ctx_save_restore_address=c.alloc(size + PAGE)["va_addr"])


def alloc(
    number: int, linux: str = "7.0", inject: tuple[str, ...] = (), acquire: bool = True, **changes: Any
) -> Row:
    base = {"va_addr": 0x2_0000_0000, "size": PAGE, "flags": GTT}
    command = kfd.IOC_ALLOC_MEMORY_OF_GPU
    return Row(command, lambda c: {**base, "gpu_id": c.gpu_id} | changes, number, acquire, linux, inject)


def mapping(number: int, command: Ioctl = kfd.IOC_MAP_MEMORY_TO_GPU, ids: str = "own", **changes: Any) -> Row:
    def change(c: Client) -> dict[str, Any]:
        c.keep = u32_array([c.gpu_id if ids == "own" else 77])
        buffer = c.alloc(PAGE, mapped=False)
        base = {"handle": buffer["handle"], "n_devices": 1}
        return base | {"device_ids_array_ptr": c.keep.address} | changes

    return Row(command, change, number)


def unknown_handle(c: Client, index: int = 99) -> int:
    return c.gpu_id << 32 | index


def unmap_of_live_queue(c: Client) -> dict[str, Any]:
    arguments = c.queue_arguments()
    c.call(kfd.IOC_CREATE_QUEUE, **arguments)
    kfd_state = c.driver.process.kfd
    assert kfd_state is not None
    held = next(b for b in kfd_state.buffers.values() if b.va == arguments["ring_base_address"])
    c.keep = u32_array([c.gpu_id])
    return {
        "handle": held.handle,
        "device_ids_array_ptr": c.keep.address,
        "n_devices": 1,
    }


def event_page(c: Client) -> dict[str, Any]:
    page = c.alloc(0x8000)["handle"]
    c.event(page=page)
    return {"handle": page}


def second_page(c: Client) -> dict[str, Any]:
    c.event(page=c.alloc(0x8000)["handle"])
    return {"event_page_offset": c.alloc(0x8000)["handle"]}


def cu_mask(bits: int, words: list[int] | None, known: bool = True) -> Change:
    def change(c: Client) -> dict[str, Any]:
        c.keep = u32_array(words or [0])
        queue_id = c.queue()["queue_id"] if known else 5
        pointer = c.keep.address if words else 0
        return {"queue_id": queue_id, "num_cu_mask": bits, "cu_mask_ptr": pointer}

    return change


def on_gpu(**changes: Any) -> Change:
    return lambda c: {"gpu_id": c.gpu_id} | changes


POLICY = unsent_ioctls.IOC_SET_MEMORY_POLICY
IDS = u32_array([56387])  # the R9700's
ROWS = (
    # --- CREATE_QUEUE ---
    queue(0),
    queue(errno.EINVAL, queue_percentage=101),
    queue(errno.EINVAL, queue_priority=16),
    queue(errno.EINVAL, ring_size=3000),
    queue(errno.EINVAL, ring_size=0),
    queue(errno.EFAULT, ring_base_address=KERNEL_ADDRESS),
    queue(errno.EFAULT, read_pointer_address=KERNEL_ADDRESS),
    queue(errno.EFAULT, write_pointer_address=0),
    queue(errno.EFAULT, eop_buffer_address=KERNEL_ADDRESS),
    queue(errno.EFAULT, ctx_save_restore_address=KERNEL_ADDRESS),
    queue(ENOTSUPP, queue_type=9),
    queue(0, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL),
    queue(errno.EINVAL, gpu_id=1),
    queue(errno.EINVAL, ring_base_address=0x7000_0000_0000),
    queue(errno.EINVAL, eop_buffer_size=8192),
    queue(errno.EINVAL, ctx_save_restore_address=0),
    queue(0, eop_buffer_address=0, eop_buffer_size=0),
    made(errno.EINVAL, other_ring),
    made(errno.EINVAL, shifted_ring),
    made(errno.EINVAL, wptr_in_vram),
    made(errno.EINVAL, wptr_of_sdma_in_vram),
    made(errno.EINVAL, wptr_of_two_pages),
    made(errno.EINVAL, rptr_in_second_page),
    made(errno.EINVAL, eop_too_long),
    made(errno.EINVAL, ctl_off_by_a_page),
    made(errno.EINVAL, save_area_small),
    made(errno.EINVAL, save_area_too_long),
    made(0, other_ring, linux="6.8"),
    made(0, ctl_off_by_a_page, linux="6.8"),
    queue(0, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA),
    queue(0, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID, sdma_engine_id=1),
    queue(errno.EINVAL, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID, sdma_engine_id=2),
    queue(ENOTSUPP, linux="6.8", queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID),
    queue(errno.ENOMEM, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_XGMI),
    queue(errno.EINVAL, inject=("cwsr-mismatch",)),
    queue(errno.EIO, inject=("mes-add-failure",)),
    Row(kfd.IOC_CREATE_QUEUE, on_gpu(ring_size=0), errno.EFAULT, acquire=False),
    Row(
        kfd.IOC_CREATE_QUEUE,
        on_gpu(write_pointer_address=PAGE, read_pointer_address=PAGE),
        errno.ESRCH,
        acquire=False,
    ),
    # --- other queue calls ---
    Row(kfd.IOC_DESTROY_QUEUE, {"queue_id": 5}, errno.EINVAL),
    Row(kfd.IOC_UPDATE_QUEUE, {"queue_id": 5}, errno.EFAULT),
    Row(kfd.IOC_UPDATE_QUEUE, {"queue_percentage": 101}, errno.EINVAL),
    Row(kfd.IOC_UPDATE_QUEUE, lambda c: {"queue_id": c.queue()["queue_id"]}, 0),
    Row(
        kfd.IOC_UPDATE_QUEUE,
        lambda c: {"queue_id": c.queue()["queue_id"], "ring_base_address": PAGE, "ring_size": RING},
        errno.EFAULT,
    ),
    Row(kfd.IOC_SET_CU_MASK, cu_mask(64, [3, 3]), 0),
    Row(kfd.IOC_SET_CU_MASK, cu_mask(64, [1, 3]), errno.EINVAL),
    Row(kfd.IOC_SET_CU_MASK, cu_mask(0, [3]), errno.EINVAL),
    Row(kfd.IOC_SET_CU_MASK, cu_mask(33, [3]), errno.EINVAL),
    Row(kfd.IOC_SET_CU_MASK, cu_mask(32, None), errno.EFAULT),
    Row(kfd.IOC_SET_CU_MASK, cu_mask(32, [3], known=False), errno.EFAULT),
    Row(unsent_ioctls.IOC_GET_QUEUE_WAVE_STATE, {"queue_id": 5}, errno.EFAULT),
    Row(unsent_ioctls.IOC_ALLOC_QUEUE_GWS, {"queue_id": 5}, errno.EINVAL),
    # --- memory ---
    alloc(0),
    alloc(errno.EINVAL, size=0),
    alloc(errno.EINVAL, gpu_id=1),
    alloc(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE),
    alloc(errno.ENODEV, acquire=False),
    alloc(errno.EINVAL, flags=unsent_ioctls.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL, size=PAGE),
    alloc(0, flags=unsent_ioctls.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL, size=8192),
    alloc(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP, size=8192),
    alloc(0, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP),
    alloc(errno.EINVAL, inject=("small-bar",), flags=VRAM_PUBLIC),
    alloc(0, inject=("small-bar",), flags=VRAM),
    alloc(errno.ENOMEM, inject=("out-of-memory",)),
    alloc(errno.ENOMEM, flags=VRAM, size=1 << 36),
    alloc(errno.ENOMEM, flags=GTT, size=(1 << 64) - PAGE),
    alloc(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, mmap_offset=1),
    alloc(errno.EFAULT, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, mmap_offset=PAGE),
    alloc(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, mmap_offset=KERNEL_ADDRESS),
    Row(kfd.IOC_FREE_MEMORY_OF_GPU, lambda c: {"handle": unknown_handle(c)}, errno.EINVAL),
    Row(kfd.IOC_FREE_MEMORY_OF_GPU, {"handle": 5}, errno.EINVAL),
    Row(kfd.IOC_FREE_MEMORY_OF_GPU, lambda c: {"handle": c.alloc(PAGE)["handle"]}, errno.EBUSY),
    Row(kfd.IOC_FREE_MEMORY_OF_GPU, event_page, errno.EPERM),
    mapping(0),
    mapping(errno.EINVAL, n_devices=0),
    mapping(errno.EINVAL, n_success=2),
    mapping(errno.EFAULT, device_ids_array_ptr=0),
    mapping(errno.EFAULT, device_ids_array_ptr=PAGE),
    mapping(errno.EFAULT, device_ids_array_ptr=KERNEL_ADDRESS),
    mapping(errno.EINVAL, ids="other"),
    mapping(errno.EINVAL, handle=7),
    Row(
        kfd.IOC_MAP_MEMORY_TO_GPU,
        lambda c: {"handle": unknown_handle(c), "n_devices": 1, "device_ids_array_ptr": IDS.address},
        errno.ENOMEM,
    ),
    mapping(errno.EINVAL, command=kfd.IOC_UNMAP_MEMORY_FROM_GPU),
    mapping(errno.EINVAL, command=kfd.IOC_UNMAP_MEMORY_FROM_GPU, n_devices=0),
    Row(kfd.IOC_UNMAP_MEMORY_FROM_GPU, unmap_of_live_queue, errno.EBUSY),
    Row(kfd.IOC_UNMAP_MEMORY_FROM_GPU, unmap_of_live_queue, 0, linux="6.8"),
    Row(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": c.drm, "gpu_id": c.gpu_id}, 0),
    Row(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": c.kfd, "gpu_id": c.gpu_id}, errno.EINVAL, acquire=False),
    Row(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": 3, "gpu_id": c.gpu_id}, errno.EINVAL, acquire=False),
    Row(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": c.drm, "gpu_id": 1}, errno.EINVAL, acquire=False),
    Row(
        kfd.IOC_ACQUIRE_VM,
        lambda c: {"drm_fd": c.driver.open("/dev/dri/renderD128", 2), "gpu_id": c.gpu_id},
        errno.EBUSY,
    ),
    Row(POLICY, on_gpu(), 0),
    Row(POLICY, on_gpu(default_policy=2), errno.EINVAL),
    Row(POLICY, {"gpu_id": 1}, errno.EINVAL),
    Row(POLICY, on_gpu(), errno.ESRCH, acquire=False),
    Row(unsent_ioctls.IOC_SET_TRAP_HANDLER, on_gpu(), 0),
    Row(unsent_ioctls.IOC_SET_TRAP_HANDLER, {"gpu_id": 1}, errno.EINVAL),
    Row(unsent_ioctls.IOC_SET_TRAP_HANDLER, on_gpu(), errno.ESRCH, acquire=False),
    Row(kfd.IOC_AVAILABLE_MEMORY, {"gpu_id": 1}, errno.EINVAL),
    Row(kfd.IOC_GET_CLOCK_COUNTERS, {"gpu_id": 1}, errno.EINVAL),
    Row(unsent_ioctls.IOC_IMPORT_DMABUF, on_gpu(dmabuf_fd=3), errno.EBADF),
    Row(unsent_ioctls.IOC_EXPORT_DMABUF, lambda c: {"handle": unknown_handle(c)}, errno.EINVAL),
    Row(unsent_ioctls.IOC_GET_DMABUF_INFO, {"dmabuf_fd": 3}, errno.EINVAL),
    # --- events ---
    Row(kfd.IOC_CREATE_EVENT, second_page, errno.EINVAL),
    Row(kfd.IOC_CREATE_EVENT, {"event_page_offset": 5}, errno.EINVAL),
    Row(kfd.IOC_CREATE_EVENT, lambda c: {"event_page_offset": unknown_handle(c)}, errno.EINVAL),
    Row(kfd.IOC_CREATE_EVENT, lambda c: {"event_page_offset": c.gpu_id << 32 | 1}, errno.ENODEV, acquire=False),
    Row(kfd.IOC_CREATE_EVENT, lambda c: {"event_page_offset": c.alloc(PAGE)["handle"]}, errno.EINVAL),
    Row(kfd.IOC_DESTROY_EVENT, {"event_id": 9}, errno.EINVAL),
    Row(kfd.IOC_SET_EVENT, {"event_id": 9}, errno.EINVAL),
    Row(kfd.IOC_RESET_EVENT, {"event_id": 9}, errno.EINVAL),
    Row(kfd.IOC_SET_EVENT, lambda c: {"event_id": c.event(kfd.KFD_IOC_EVENT_MEMORY)["event_id"]}, errno.EINVAL),
    Row(kfd.IOC_WAIT_EVENTS, {"num_events": 1}, errno.EFAULT),
    Row(kfd.IOC_WAIT_EVENTS, {"num_events": 1, "events_ptr": PAGE}, errno.EFAULT),
    Row(kfd.IOC_WAIT_EVENTS, {"num_events": 0xFFFFFFFF, "events_ptr": PAGE}, errno.ENOMEM),
    Row(kfd.IOC_WAIT_EVENTS, {"wait_for_all": 1}, 0),
    # --- the rest ---
    Row(kfd.IOC_GET_PROCESS_APERTURES_NEW, {"num_of_nodes": 1}, errno.EFAULT),
    Row(unsent_ioctls.IOC_DBG_REGISTER, {}, errno.EPERM),
    Row(unsent_ioctls.IOC_DBG_WAVE_CONTROL, {}, errno.EPERM),
    Row(unsent_ioctls.IOC_SMI_EVENTS, {"gpuid": 1}, errno.EINVAL),
    Row(unsent_ioctls.IOC_SET_XNACK_MODE, {"xnack_enabled": 1}, errno.EPERM),
    Row(unsent_ioctls.IOC_SET_XNACK_MODE, {"xnack_enabled": -1}, 0),
    Row(unsent_ioctls.IOC_RUNTIME_ENABLE, {}, 0),
    Row(kfd.IOC_GET_VERSION, {}, 0, inject=("gpu-gone",)),
    Row(kfd.IOC_GET_CLOCK_COUNTERS, on_gpu(), errno.ENODEV, acquire=False, inject=("gpu-gone",)),
)


def _name(row: Row) -> str:
    return f"{row.command.name.removeprefix('AMDKFD_IOC_')}-{errno.errorcode.get(row.errno, row.errno)}"


@pytest.mark.rest(keep=41)
@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_ioctl_errno_matches_the_kernel(row: Row) -> None:
    early = [item for item in row.inject if item != "gpu-gone"]
    with client(*early, acquire=row.acquire, linux=row.linux) as c:
        if "gpu-gone" in row.inject:
            c.machine.injector.add("gpu-gone")
        values = row.change(c) if callable(row.change) else row.change
        assert c.errno(row.command, **values) == row.errno


@pytest.mark.parametrize(
    ("number", "linux", "expected"),
    [
        (0x00, "7.0", errno.ENOTTY),
        (0x29, "7.0", errno.ENOTTY),
        (0x27, "6.12", errno.ENOTTY),
        (0x28, "7.2", errno.EPERM),
    ],
)
def test_ioctl_numbers_outside_the_table_are_rejected(number: int, linux: str, expected: int) -> None:
    with client(linux=linux) as c, pytest.raises(OSError) as caught:
        c.driver.ioctl(c.kfd, ioc("rw", "K", number, 16), bytearray(16))
    assert caught.value.errno == expected


def test_88_and_96_byte_create_queue_structs_are_accepted() -> None:
    with client() as c:
        record = kfd.CREATE_QUEUE.new(**c.queue_arguments())
        raw = bytearray(record.raw[:88])
        c.driver.ioctl(c.kfd, ioc("rw", "K", 2, 88), raw)
        made_queue = kfd.CREATE_QUEUE.read(raw)
        assert made_queue["doorbell_offset"] >> 62 == 3
        longer = bytearray(bytes(kfd.GET_VERSION.size_bytes) + b"\xaa" * 8)
        c.driver.ioctl(c.kfd, ioc("r", "K", 1, 16), longer)
        assert longer[:4] == b"\1\0\0\0"


def test_output_is_copied_back_when_the_call_fails() -> None:
    with client() as c:
        first, ids = c.alloc(PAGE, mapped=False), u32_array([c.gpu_id, 77])
        record = kfd.MAP_MEMORY_TO_GPU.new(handle=first["handle"], device_ids_array_ptr=ids.address, n_devices=2)
        with pytest.raises(OSError):
            c.call(kfd.IOC_MAP_MEMORY_TO_GPU, record)
        assert record["n_success"] == 1
        wait = kfd.WAIT_EVENTS.new(num_events=1, events_ptr=ids.address)
        with pytest.raises(OSError):
            c.call(kfd.IOC_WAIT_EVENTS, wait)
        assert wait["wait_result"] == unsent_ioctls.KFD_IOC_WAIT_RESULT_FAIL
