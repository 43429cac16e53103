"""Each KFD ioctl with each bad argument: the kernel's errno. Rows follow reference tables of amdkfd."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from kmd import unsent_ioctls
from sim.device import GTT, PAGE, RING, VRAM, VRAM_PUBLIC, Client, open_client

from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import make_u32_array
from zinc_rt.kmd.uapi.structs import Ioctl, encode_ioctl

ENOTSUPP = 524
KERNEL_ADDRESS = 0xFFFF_8000_0000_0000
Change = Callable[[Client], dict[str, Any]] | dict[str, Any]


@dataclass(frozen=True)
class ErrnoRow:
    command: Ioctl
    change: Change
    errno: int
    acquire: bool = True
    linux: str = "7.0"
    inject: tuple[str, ...] = ()


def queue_row(number: int, linux: str = "7.0", inject: tuple[str, ...] = (), **changes: Any) -> ErrnoRow:
    return ErrnoRow(
        kfd.IOC_CREATE_QUEUE, lambda c: c.queue_arguments(**changes), number, linux=linux, inject=inject
    )


def created_row(number: int, change: Callable[[Client], dict[str, Any]], linux: str = "7.0") -> ErrnoRow:
    return ErrnoRow(kfd.IOC_CREATE_QUEUE, change, number, linux=linux)


def use_other_ring(client: Client) -> dict[str, Any]:
    return client.queue_arguments(ring_base_address=client.alloc(2 * RING)["va_addr"])


def shift_ring(client: Client) -> dict[str, Any]:
    arguments = client.queue_arguments()
    return arguments | {"ring_base_address": arguments["ring_base_address"] + PAGE, "ring_size": RING // 2}


def put_wptr_in_vram(client: Client) -> dict[str, Any]:
    return client.queue_arguments(write_pointer_address=client.alloc(PAGE, VRAM_PUBLIC)["va_addr"])


def put_sdma_wptr_in_vram(client: Client) -> dict[str, Any]:
    return put_wptr_in_vram(client) | {"queue_type": unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA}


def use_two_wptr_pages(client: Client) -> dict[str, Any]:
    return client.queue_arguments(write_pointer_address=client.alloc(2 * PAGE)["va_addr"])


def put_rptr_in_second_page(client: Client) -> dict[str, Any]:
    return client.queue_arguments(read_pointer_address=client.alloc(2 * PAGE)["va_addr"] + PAGE)


def lengthen_eop(client: Client) -> dict[str, Any]:
    return client.queue_arguments(eop_buffer_address=client.alloc(2 * PAGE)["va_addr"])


def change_control_stack_size(client: Client) -> dict[str, Any]:
    arguments = client.queue_arguments()
    return arguments | {"ctl_stack_size": arguments["ctl_stack_size"] + PAGE}


def shrink_save_area(client: Client) -> dict[str, Any]:
    arguments = client.queue_arguments()
    return arguments | {"ctx_save_restore_size": arguments["ctx_save_restore_size"] - PAGE}


def lengthen_save_area(client: Client) -> dict[str, Any]:
    size = client.gpu.chip.compute_cwsr().compute_buffer_bytes(client.gpu.chip.compute_cwsr().save_restore_bytes)
    return client.queue_arguments(ctx_save_restore_address=client.alloc(size + PAGE)["va_addr"])


def alloc_row(
    number: int, linux: str = "7.0", inject: tuple[str, ...] = (), acquire: bool = True, **changes: Any
) -> ErrnoRow:
    base = {"va_addr": 0x2_0000_0000, "size": PAGE, "flags": GTT}
    command = kfd.IOC_ALLOC_MEMORY_OF_GPU
    return ErrnoRow(command, lambda c: {**base, "gpu_id": c.gpu_id} | changes, number, acquire, linux, inject)


def mapping_row(
    number: int, command: Ioctl = kfd.IOC_MAP_MEMORY_TO_GPU, ids: str = "own", **changes: Any
) -> ErrnoRow:
    def make_arguments(client: Client) -> dict[str, Any]:
        client.keep = make_u32_array([client.gpu_id if ids == "own" else 77])
        buffer = client.alloc(PAGE, mapped=False)
        base = {"handle": buffer["handle"], "n_devices": 1}
        return base | {"device_ids_array_ptr": client.keep.address} | changes

    return ErrnoRow(command, make_arguments, number)


def use_unknown_handle(client: Client, index: int = 99) -> int:
    return client.gpu_id << 32 | index


def unmap_live_queue(client: Client) -> dict[str, Any]:
    arguments = client.queue_arguments()
    client.call(kfd.IOC_CREATE_QUEUE, **arguments)
    kfd_state = client.driver.process.kfd
    assert kfd_state is not None
    held = next(b for b in kfd_state.buffers.values() if b.va == arguments["ring_base_address"])
    client.keep = make_u32_array([client.gpu_id])
    return {
        "handle": held.handle,
        "device_ids_array_ptr": client.keep.address,
        "n_devices": 1,
    }


def use_event_page(client: Client) -> dict[str, Any]:
    page = client.alloc(0x8000)["handle"]
    client.event(page=page)
    return {"handle": page}


def use_second_page(client: Client) -> dict[str, Any]:
    client.event(page=client.alloc(0x8000)["handle"])
    return {"event_page_offset": client.alloc(0x8000)["handle"]}


def cu_mask_row(bits: int, words: list[int] | None, known: bool = True) -> Change:
    def make_arguments(client: Client) -> dict[str, Any]:
        client.keep = make_u32_array(words or [0])
        queue_id = client.queue()["queue_id"] if known else 5
        pointer = client.keep.address if words else 0
        return {"queue_id": queue_id, "num_cu_mask": bits, "cu_mask_ptr": pointer}

    return make_arguments


def on_gpu_row(**changes: Any) -> Change:
    return lambda c: {"gpu_id": c.gpu_id} | changes


POLICY = unsent_ioctls.IOC_SET_MEMORY_POLICY
IDS = make_u32_array([56387])  # the R9700's
ROWS = (
    # --- CREATE_QUEUE ---
    queue_row(0),
    queue_row(errno.EINVAL, queue_percentage=101),
    queue_row(errno.EINVAL, queue_priority=16),
    queue_row(errno.EINVAL, ring_size=3000),
    queue_row(errno.EINVAL, ring_size=0),
    queue_row(errno.EFAULT, ring_base_address=KERNEL_ADDRESS),
    queue_row(errno.EFAULT, read_pointer_address=KERNEL_ADDRESS),
    queue_row(errno.EFAULT, write_pointer_address=0),
    queue_row(errno.EFAULT, eop_buffer_address=KERNEL_ADDRESS),
    queue_row(errno.EFAULT, ctx_save_restore_address=KERNEL_ADDRESS),
    queue_row(ENOTSUPP, queue_type=9),
    queue_row(0, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL),
    queue_row(errno.EINVAL, gpu_id=1),
    queue_row(errno.EINVAL, ring_base_address=0x7000_0000_0000),
    queue_row(errno.EINVAL, eop_buffer_size=8192),
    queue_row(errno.EINVAL, ctx_save_restore_address=0),
    queue_row(0, eop_buffer_address=0, eop_buffer_size=0),
    created_row(errno.EINVAL, use_other_ring),
    created_row(errno.EINVAL, shift_ring),
    created_row(errno.EINVAL, put_wptr_in_vram),
    created_row(errno.EINVAL, put_sdma_wptr_in_vram),
    created_row(errno.EINVAL, use_two_wptr_pages),
    created_row(errno.EINVAL, put_rptr_in_second_page),
    created_row(errno.EINVAL, lengthen_eop),
    created_row(errno.EINVAL, change_control_stack_size),
    created_row(errno.EINVAL, shrink_save_area),
    created_row(errno.EINVAL, lengthen_save_area),
    created_row(0, use_other_ring, linux="6.8"),
    created_row(0, change_control_stack_size, linux="6.8"),
    queue_row(0, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA),
    queue_row(0, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID, sdma_engine_id=1),
    queue_row(errno.EINVAL, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID, sdma_engine_id=2),
    queue_row(ENOTSUPP, linux="6.8", queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID),
    queue_row(errno.ENOMEM, queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA_XGMI),
    queue_row(errno.EINVAL, inject=("cwsr-mismatch",)),
    queue_row(errno.EIO, inject=("mes-add-failure",)),
    ErrnoRow(kfd.IOC_CREATE_QUEUE, on_gpu_row(ring_size=0), errno.EFAULT, acquire=False),
    ErrnoRow(
        kfd.IOC_CREATE_QUEUE,
        on_gpu_row(write_pointer_address=PAGE, read_pointer_address=PAGE),
        errno.ESRCH,
        acquire=False,
    ),
    # --- other queue calls ---
    ErrnoRow(kfd.IOC_DESTROY_QUEUE, {"queue_id": 5}, errno.EINVAL),
    ErrnoRow(kfd.IOC_UPDATE_QUEUE, {"queue_id": 5}, errno.EFAULT),
    ErrnoRow(kfd.IOC_UPDATE_QUEUE, {"queue_percentage": 101}, errno.EINVAL),
    ErrnoRow(kfd.IOC_UPDATE_QUEUE, lambda c: {"queue_id": c.queue()["queue_id"]}, 0),
    ErrnoRow(
        kfd.IOC_UPDATE_QUEUE,
        lambda c: {"queue_id": c.queue()["queue_id"], "ring_base_address": PAGE, "ring_size": RING},
        errno.EFAULT,
    ),
    ErrnoRow(kfd.IOC_SET_CU_MASK, cu_mask_row(64, [3, 3]), 0),
    ErrnoRow(kfd.IOC_SET_CU_MASK, cu_mask_row(64, [1, 3]), errno.EINVAL),
    ErrnoRow(kfd.IOC_SET_CU_MASK, cu_mask_row(0, [3]), errno.EINVAL),
    ErrnoRow(kfd.IOC_SET_CU_MASK, cu_mask_row(33, [3]), errno.EINVAL),
    ErrnoRow(kfd.IOC_SET_CU_MASK, cu_mask_row(32, None), errno.EFAULT),
    ErrnoRow(kfd.IOC_SET_CU_MASK, cu_mask_row(32, [3], known=False), errno.EFAULT),
    ErrnoRow(unsent_ioctls.IOC_GET_QUEUE_WAVE_STATE, {"queue_id": 5}, errno.EFAULT),
    ErrnoRow(unsent_ioctls.IOC_ALLOC_QUEUE_GWS, {"queue_id": 5}, errno.EINVAL),
    # --- memory ---
    alloc_row(0),
    alloc_row(errno.EINVAL, size=0),
    alloc_row(errno.EINVAL, gpu_id=1),
    alloc_row(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE),
    alloc_row(errno.ENODEV, acquire=False),
    alloc_row(errno.EINVAL, flags=unsent_ioctls.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL, size=PAGE),
    alloc_row(0, flags=unsent_ioctls.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL, size=8192),
    alloc_row(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP, size=8192),
    alloc_row(0, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP),
    alloc_row(errno.EINVAL, inject=("small-bar",), flags=VRAM_PUBLIC),
    alloc_row(0, inject=("small-bar",), flags=VRAM),
    alloc_row(errno.ENOMEM, inject=("out-of-memory",)),
    alloc_row(errno.ENOMEM, flags=VRAM, size=1 << 36),
    alloc_row(errno.ENOMEM, flags=GTT, size=(1 << 64) - PAGE),
    alloc_row(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, mmap_offset=1),
    alloc_row(errno.EFAULT, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, mmap_offset=PAGE),
    alloc_row(errno.EINVAL, flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, mmap_offset=KERNEL_ADDRESS),
    ErrnoRow(kfd.IOC_FREE_MEMORY_OF_GPU, lambda c: {"handle": use_unknown_handle(c)}, errno.EINVAL),
    ErrnoRow(kfd.IOC_FREE_MEMORY_OF_GPU, {"handle": 5}, errno.EINVAL),
    ErrnoRow(kfd.IOC_FREE_MEMORY_OF_GPU, lambda c: {"handle": c.alloc(PAGE)["handle"]}, errno.EBUSY),
    ErrnoRow(kfd.IOC_FREE_MEMORY_OF_GPU, use_event_page, errno.EPERM),
    mapping_row(0),
    mapping_row(errno.EINVAL, n_devices=0),
    mapping_row(errno.EINVAL, n_success=2),
    mapping_row(errno.EFAULT, device_ids_array_ptr=0),
    mapping_row(errno.EFAULT, device_ids_array_ptr=PAGE),
    mapping_row(errno.EFAULT, device_ids_array_ptr=KERNEL_ADDRESS),
    mapping_row(errno.EINVAL, ids="other"),
    mapping_row(errno.EINVAL, handle=7),
    ErrnoRow(
        kfd.IOC_MAP_MEMORY_TO_GPU,
        lambda c: {"handle": use_unknown_handle(c), "n_devices": 1, "device_ids_array_ptr": IDS.address},
        errno.ENOMEM,
    ),
    mapping_row(errno.EINVAL, command=kfd.IOC_UNMAP_MEMORY_FROM_GPU),
    mapping_row(errno.EINVAL, command=kfd.IOC_UNMAP_MEMORY_FROM_GPU, n_devices=0),
    ErrnoRow(kfd.IOC_UNMAP_MEMORY_FROM_GPU, unmap_live_queue, errno.EBUSY),
    ErrnoRow(kfd.IOC_UNMAP_MEMORY_FROM_GPU, unmap_live_queue, 0, linux="6.8"),
    ErrnoRow(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": c.drm, "gpu_id": c.gpu_id}, 0),
    ErrnoRow(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": c.kfd, "gpu_id": c.gpu_id}, errno.EINVAL, acquire=False),
    ErrnoRow(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": 3, "gpu_id": c.gpu_id}, errno.EINVAL, acquire=False),
    ErrnoRow(kfd.IOC_ACQUIRE_VM, lambda c: {"drm_fd": c.drm, "gpu_id": 1}, errno.EINVAL, acquire=False),
    ErrnoRow(
        kfd.IOC_ACQUIRE_VM,
        lambda c: {"drm_fd": c.driver.open("/dev/dri/renderD128", 2), "gpu_id": c.gpu_id},
        errno.EBUSY,
    ),
    ErrnoRow(POLICY, on_gpu_row(), 0),
    ErrnoRow(POLICY, on_gpu_row(default_policy=2), errno.EINVAL),
    ErrnoRow(POLICY, {"gpu_id": 1}, errno.EINVAL),
    ErrnoRow(POLICY, on_gpu_row(), errno.ESRCH, acquire=False),
    ErrnoRow(unsent_ioctls.IOC_SET_TRAP_HANDLER, on_gpu_row(), 0),
    ErrnoRow(unsent_ioctls.IOC_SET_TRAP_HANDLER, {"gpu_id": 1}, errno.EINVAL),
    ErrnoRow(unsent_ioctls.IOC_SET_TRAP_HANDLER, on_gpu_row(), errno.ESRCH, acquire=False),
    ErrnoRow(kfd.IOC_AVAILABLE_MEMORY, {"gpu_id": 1}, errno.EINVAL),
    ErrnoRow(kfd.IOC_GET_CLOCK_COUNTERS, {"gpu_id": 1}, errno.EINVAL),
    ErrnoRow(unsent_ioctls.IOC_IMPORT_DMABUF, on_gpu_row(dmabuf_fd=3), errno.EBADF),
    ErrnoRow(unsent_ioctls.IOC_EXPORT_DMABUF, lambda c: {"handle": use_unknown_handle(c)}, errno.EINVAL),
    ErrnoRow(unsent_ioctls.IOC_GET_DMABUF_INFO, {"dmabuf_fd": 3}, errno.EINVAL),
    # --- events ---
    ErrnoRow(kfd.IOC_CREATE_EVENT, use_second_page, errno.EINVAL),
    ErrnoRow(kfd.IOC_CREATE_EVENT, {"event_page_offset": 5}, errno.EINVAL),
    ErrnoRow(kfd.IOC_CREATE_EVENT, lambda c: {"event_page_offset": use_unknown_handle(c)}, errno.EINVAL),
    ErrnoRow(
        kfd.IOC_CREATE_EVENT, lambda c: {"event_page_offset": c.gpu_id << 32 | 1}, errno.ENODEV, acquire=False
    ),
    ErrnoRow(kfd.IOC_CREATE_EVENT, lambda c: {"event_page_offset": c.alloc(PAGE)["handle"]}, errno.EINVAL),
    ErrnoRow(kfd.IOC_DESTROY_EVENT, {"event_id": 9}, errno.EINVAL),
    ErrnoRow(kfd.IOC_SET_EVENT, {"event_id": 9}, errno.EINVAL),
    ErrnoRow(kfd.IOC_RESET_EVENT, {"event_id": 9}, errno.EINVAL),
    ErrnoRow(
        kfd.IOC_SET_EVENT, lambda c: {"event_id": c.event(kfd.KFD_IOC_EVENT_MEMORY)["event_id"]}, errno.EINVAL
    ),
    ErrnoRow(kfd.IOC_WAIT_EVENTS, {"num_events": 1}, errno.EFAULT),
    ErrnoRow(kfd.IOC_WAIT_EVENTS, {"num_events": 1, "events_ptr": PAGE}, errno.EFAULT),
    ErrnoRow(kfd.IOC_WAIT_EVENTS, {"num_events": 0xFFFFFFFF, "events_ptr": PAGE}, errno.ENOMEM),
    ErrnoRow(kfd.IOC_WAIT_EVENTS, {"wait_for_all": 1}, 0),
    # --- the rest ---
    ErrnoRow(kfd.IOC_GET_PROCESS_APERTURES_NEW, {"num_of_nodes": 1}, errno.EFAULT),
    ErrnoRow(unsent_ioctls.IOC_DBG_REGISTER, {}, errno.EPERM),
    ErrnoRow(unsent_ioctls.IOC_DBG_WAVE_CONTROL, {}, errno.EPERM),
    ErrnoRow(unsent_ioctls.IOC_SMI_EVENTS, {"gpuid": 1}, errno.EINVAL),
    ErrnoRow(unsent_ioctls.IOC_SET_XNACK_MODE, {"xnack_enabled": 1}, errno.EPERM),
    ErrnoRow(unsent_ioctls.IOC_SET_XNACK_MODE, {"xnack_enabled": -1}, 0),
    ErrnoRow(unsent_ioctls.IOC_RUNTIME_ENABLE, {}, 0),
    ErrnoRow(kfd.IOC_GET_VERSION, {}, 0, inject=("gpu-gone",)),
    ErrnoRow(kfd.IOC_GET_CLOCK_COUNTERS, on_gpu_row(), errno.ENODEV, acquire=False, inject=("gpu-gone",)),
)


def row_name(row: ErrnoRow) -> str:
    return f"{row.command.name.removeprefix('AMDKFD_IOC_')}-{errno.errorcode.get(row.errno, row.errno)}"


@pytest.mark.rest(keep=41)
@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_ioctl_errno_matches_the_kernel(row: ErrnoRow) -> None:
    early = [item for item in row.inject if item != "gpu-gone"]
    with open_client(*early, acquire=row.acquire, linux=row.linux) as c:
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
    with open_client(linux=linux) as c, pytest.raises(OSError) as caught:
        c.driver.ioctl(c.kfd, encode_ioctl("rw", "K", number, 16), bytearray(16))
    assert caught.value.errno == expected


def test_88_and_96_byte_create_queue_structs_are_accepted() -> None:
    with open_client() as c:
        record = kfd.CREATE_QUEUE.new(**c.queue_arguments())
        raw = bytearray(record.raw[:88])
        c.driver.ioctl(c.kfd, encode_ioctl("rw", "K", 2, 88), raw)
        made_queue = kfd.CREATE_QUEUE.read(raw)
        assert made_queue["doorbell_offset"] >> 62 == 3
        longer = bytearray(bytes(kfd.GET_VERSION.size_bytes) + b"\xaa" * 8)
        c.driver.ioctl(c.kfd, encode_ioctl("r", "K", 1, 16), longer)
        assert longer[:4] == b"\1\0\0\0"


def test_output_is_copied_back_when_the_call_fails() -> None:
    with open_client() as c:
        first, ids = c.alloc(PAGE, mapped=False), make_u32_array([c.gpu_id, 77])
        record = kfd.MAP_MEMORY_TO_GPU.new(handle=first["handle"], device_ids_array_ptr=ids.address, n_devices=2)
        with pytest.raises(OSError):
            c.call(kfd.IOC_MAP_MEMORY_TO_GPU, record)
        assert record["n_success"] == 1
        wait = kfd.WAIT_EVENTS.new(num_events=1, events_ptr=ids.address)
        with pytest.raises(OSError):
            c.call(kfd.IOC_WAIT_EVENTS, wait)
        assert wait["wait_result"] == unsent_ioctls.KFD_IOC_WAIT_RESULT_FAIL
