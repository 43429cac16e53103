"""A Vulkan that computes nothing and forgives nothing: handles, lifetimes, timelines and barriers are checked.

    fake = FakeVulkan()                                  # MAPPED memory as lavapipe's, or DISCRETE
    backend = VulkanBackend(spec, "canonical-1", fake.device(), KERNELS, after=...)
    fake.stalled = True                                  # nothing that is submitted ends from here on

It runs copies and fills, not kernels. What a dispatch touches is what its kernarg block names: whole buffers,
unless `places` says what lies where (fake_backend.py).
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from backends.vulkan.fake_hazards import (
    GRID_READ,
    SHADER_READ,
    TRANSFER_READ,
    Access,
    FakeVulkanError,
    Hazards,
)

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.commands import COMPUTE, INDIRECT, SHADER_WRITE, TRANSFER, TRANSFER_WRITE
from zinc_rt.backends.vulkan.device import DeviceQueue, VulkanDevice
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.physical_device import (
    FLOAT_CONTROLS,
    MODES,
    DeviceLimits,
    MemoryHeap,
    MemoryType,
    PhysicalDevice,
    QueueFamily,
)
from zinc_rt.spirv.kernarg import Kernarg, read_kernarg
from zinc_rt.spirv.modes import MODES as EXECUTION_MODES
from zinc_rt.spirv.module import SpirvModule, read_module
from zinc_rt.spirv.opcodes import Opcode

VK_SUCCESS, VK_NOT_READY, VK_TIMEOUT = 0, 1, 2
VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_DEVICE_LOST = -2, -4
VA_STEP = 1 << 32  # addresses of two buffers never look alike
ATOM_BYTES = 64
LOCAL, VISIBLE, COHERENT, CACHED = 1, 2, 4, 8  # VK_MEMORY_PROPERTY_*
HEAP_BYTES = 1 << 30
MAPPED = (MemoryType(LOCAL | VISIBLE | COHERENT | CACHED, 0),)
DISCRETE = (MemoryType(LOCAL, 0), MemoryType(VISIBLE | CACHED, 1))  # what the host maps is not coherent
STYPE_NAMES = {number: name for name, number in api.STYPES.items()}


@dataclass(eq=False)
class FakeObject:
    """The object of a handle. `data` depends on the kind."""

    kind: str
    handle: int
    data: dict[str, Any] = field(default_factory=dict)
    freed: bool = False

    def __repr__(self) -> str:
        return f"{self.kind} {self.handle:#x}{' ' + self.data['name'] if self.data.get('name') else ''}"


@dataclass(eq=False)
class FakeSubmission:
    queue: int
    buffer: FakeObject
    waits: list[tuple[FakeObject, int]]
    signals: list[tuple[FakeObject, int]]
    uses: set[FakeObject] = field(default_factory=set)


class FakeMemory:
    """The device's bytes and, for non-coherent memory, the host's copy."""

    def __init__(self, size_bytes: int, coherent: bool) -> None:
        self.device = ctypes.create_string_buffer(b"\xcd" * size_bytes, size_bytes)
        self.host = self.device if coherent else ctypes.create_string_buffer(b"\xcd" * size_bytes, size_bytes)
        self.mapped = False

    def view(self) -> memoryview:
        return memoryview(self.device).cast("B")

    def host_view(self) -> memoryview:
        return memoryview(self.host).cast("B")


class FakeVulkan:
    """`types`: the device's memory. `queues`: of its one family. `heap_bytes`: of each heap."""

    def __init__(
        self,
        types: tuple[MemoryType, ...] = MAPPED,
        *,
        queues: int = 1,
        heap_bytes: int = HEAP_BYTES,
        kind: str = "cpu",
    ) -> None:
        self.types, self.kind, self.heap_bytes = types, kind, heap_bytes
        self.queues = [0xD0 + index for index in range(queues)]
        self.extensions: frozenset[str] = frozenset()
        self.stalled = self.lost = False
        self.stops_behind: int | None = None  # dispatches of a submission, which then stands
        self.places: dict[
            int, list[tuple[int, int, str]]
        ] = {}  # by kernarg address: of each buffer (start, end, name)
        self.most_barriers = 0  # of a command buffer
        self._handles = itertools.count(0x1000, 0x10)
        self._addresses = itertools.count(VA_STEP, VA_STEP)
        self._objects: dict[int, FakeObject] = {}
        self.pending: list[FakeSubmission] = []
        self._hazards = {queue: Hazards() for queue in self.queues}

    def device(self) -> VulkanDevice:
        """Open, over this."""
        heaps = tuple(
            MemoryHeap(self.heap_bytes, bool(self.types[number].flags & LOCAL))
            for number in range(1 + max(item.heap for item in self.types))
        )
        limits = DeviceLimits(
            (65535,) * 3, 1024, 32 << 10, 256, 4096, self.heap_bytes, self.heap_bytes, ATOM_BYTES, 64, 0, 1.0, 32
        )
        physical = PhysicalDevice(
            0, "fake", self.kind, "fake driver", (1, 3, 0), 0, 0, "00", b"\0" * 16, limits, heaps, self.types,
            (QueueFamily(api.VK_QUEUE_COMPUTE_BIT, len(self.queues), 64),), frozenset(),
            frozenset(FLOAT_CONTROLS), frozenset(),
            index=0,
        )  # fmt: skip
        queues = tuple(DeviceQueue(0, index, handle) for index, handle in enumerate(self.queues))
        vk: Any = self
        return VulkanDevice(physical, vk, 1, 2, 3, queues, self.extensions, frozenset())

    def live(self, kind: str = "") -> list[FakeObject]:
        """What was made and not given back."""
        return [item for item in self._objects.values() if not item.freed and kind in ("", item.kind)]

    def lose_device(self) -> None:
        """Return VK_ERROR_DEVICE_LOST from now on; submitted work never ends."""
        self.lost = True
        self.pending.clear()

    # --- handles

    def _create_object(self, kind: str, out: Any, **data: Any) -> FakeObject:
        result = FakeObject(kind, next(self._handles), data)
        self._objects[result.handle] = result
        if out is not None:
            out._obj.value = result.handle
        return result

    def _get_object(self, handle: Any, kind: str) -> FakeObject:
        number = getattr(handle, "value", handle)
        result = self._objects.get(number)
        if result is None or result.kind != kind:
            raise FakeVulkanError(f"{number!r} is {result or 'not a handle'}: expected a {kind}")
        if result.freed:
            raise FakeVulkanError(f"{result} is used after it was freed")
        return result

    def _destroy_object(self, handle: Any, kind: str) -> None:
        number = getattr(handle, "value", handle)
        if not number:
            return  # VK_NULL_HANDLE
        result = self._objects.get(number)
        if result is not None and result.kind == kind and result.freed:
            raise FakeVulkanError(f"{result} is freed twice")
        gone = self._get_object(number, kind)
        for submission in self.pending:
            if gone in submission.uses:
                raise FakeVulkanError(f"{gone} is freed while a submission uses it")
        gone.freed = True

    # --- memory

    def vkCreateBuffer(self, device: int, info: Any, _: Any, out: Any) -> int:
        wanted = info._obj
        assert wanted.usage & api.VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT and wanted.size > 0
        self._create_object("VkBuffer", out, size=wanted.size, memory=None, va=next(self._addresses))
        return VK_SUCCESS

    def vkDestroyBuffer(self, device: int, handle: int, _: Any) -> None:
        self._destroy_object(handle, "VkBuffer")

    def vkGetBufferMemoryRequirements(self, device: int, handle: int, out: Any) -> None:
        out._obj.size = self._get_object(handle, "VkBuffer").data["size"]
        out._obj.alignment = 256
        out._obj.memoryTypeBits = (1 << len(self.types)) - 1

    def vkAllocateMemory(self, device: int, info: Any, _: Any, out: Any) -> int:
        wanted = info._obj
        flags = next(
            item for item in chained_structs(wanted) if type(item).__name__ == "VkMemoryAllocateFlagsInfo"
        )
        assert flags.flags & api.VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
        held = sum(item.data["size"] for item in self.live("VkDeviceMemory"))
        if held + wanted.allocationSize > self.heap_bytes:
            raise VulkanError(VK_ERROR_OUT_OF_DEVICE_MEMORY, "vkAllocateMemory")
        kind = self.types[wanted.memoryTypeIndex]
        memory = FakeMemory(wanted.allocationSize, bool(kind.flags & COHERENT))
        self._create_object(
            "VkDeviceMemory", out, size=wanted.allocationSize, memory=memory, visible=bool(kind.flags & VISIBLE)
        )
        return VK_SUCCESS

    def vkFreeMemory(self, device: int, handle: int, _: Any) -> None:
        if handle and (result := self._objects.get(handle)) is not None and result.kind == "VkDeviceMemory":
            for buffer in self.live("VkBuffer"):
                if buffer.data["memory"] is result and any(buffer in item.uses for item in self.pending):
                    raise FakeVulkanError(f"{result} is freed while a submission uses it")
        self._destroy_object(handle, "VkDeviceMemory")

    def vkBindBufferMemory(self, device: int, buffer: int, memory: int, offset: int) -> int:
        bound, to = self._get_object(buffer, "VkBuffer"), self._get_object(memory, "VkDeviceMemory")
        if bound.data["memory"] is not None:
            raise FakeVulkanError(f"{bound} is bound twice")
        assert offset == 0 and to.data["size"] >= bound.data["size"]
        bound.data["memory"] = to
        return VK_SUCCESS

    def vkGetBufferDeviceAddress(self, device: int, info: Any) -> int:
        return int(self._get_object(info._obj.buffer, "VkBuffer").data["va"])

    def vkMapMemory(self, device: int, memory: int, offset: int, size: int, flags: int, out: Any) -> int:
        result = self._get_object(memory, "VkDeviceMemory")
        if not result.data["visible"]:
            raise FakeVulkanError(f"{result} is mapped, but is not host-visible")
        out._obj.value = ctypes.addressof(result.data["memory"].host)
        return VK_SUCCESS

    def vkFlushMappedMemoryRanges(self, device: int, count: int, ranges: Any) -> int:
        memory, start, end = self.find_mapped_range(ranges._obj)
        memory.view()[start:end] = memory.host_view()[start:end]
        return VK_SUCCESS

    def vkInvalidateMappedMemoryRanges(self, device: int, count: int, ranges: Any) -> int:
        memory, start, end = self.find_mapped_range(ranges._obj)
        memory.host_view()[start:end] = memory.view()[start:end]
        return VK_SUCCESS

    def find_mapped_range(self, mapping: Any) -> tuple[FakeMemory, int, int]:
        result = self._get_object(mapping.memory, "VkDeviceMemory")
        size = result.data["size"]
        end = size if mapping.size == api.VK_WHOLE_SIZE else mapping.offset + mapping.size
        if mapping.offset % ATOM_BYTES or (end % ATOM_BYTES and end != size) or end > size:
            raise FakeVulkanError(f"{result}: {mapping.offset} to {end} are not whole atoms of {ATOM_BYTES} bytes")
        return result.data["memory"], mapping.offset, end

    # --- pipelines

    def vkCreateShaderModule(self, device: int, info: Any, _: Any, out: Any) -> int:
        data = ctypes.string_at(info._obj.pCode, info._obj.codeSize)
        module = read_module(data)
        self._check_modes(module)
        name = "".join(name for name in module.names.values() if name == "main")
        self._create_object("VkShaderModule", out, takes=read_kernarg(module), name=name)
        return VK_SUCCESS

    def _check_modes(self, module: SpirvModule) -> None:
        """Without the float modes that the device reports, a kernel may round and flush arbitrarily."""
        operands = {item.operands[1] for item in module.of(Opcode.ExecutionMode)}
        for name in (MODES[control] for control in FLOAT_CONTROLS):
            if EXECUTION_MODES[name][1] not in operands:
                raise FakeVulkanError(f"the kernel does not declare {name}, which this device requires")

    def vkDestroyShaderModule(self, device: int, handle: int, _: Any) -> None:
        self._destroy_object(handle, "VkShaderModule")

    def vkCreatePipelineLayout(self, device: int, info: Any, _: Any, out: Any) -> int:
        self._create_object("VkPipelineLayout", out)
        return VK_SUCCESS

    def vkDestroyPipelineLayout(self, device: int, handle: int, _: Any) -> None:
        self._destroy_object(handle, "VkPipelineLayout")

    def vkCreatePipelineCache(self, device: int, info: Any, _: Any, out: Any) -> int:
        wanted = info._obj
        held = ctypes.string_at(wanted.pInitialData, wanted.initialDataSize) if wanted.initialDataSize else b""
        self._create_object("VkPipelineCache", out, content=held)
        return VK_SUCCESS

    def vkGetPipelineCacheData(self, device: int, handle: int, size: Any, out: Any) -> int:
        content = self._get_object(handle, "VkPipelineCache").data["content"]
        if out is not None:
            ctypes.memmove(out, content, size._obj.value)
        size._obj.value = len(content)
        return VK_SUCCESS

    def vkDestroyPipelineCache(self, device: int, handle: int, _: Any) -> None:
        self._destroy_object(handle, "VkPipelineCache")

    def vkCreateComputePipelines(self, device: int, cache: int, count: int, infos: Any, _: Any, out: Any) -> int:
        held = self._get_object(cache, "VkPipelineCache")
        for index in range(count):
            info = infos[index]
            self._get_object(info.layout, "VkPipelineLayout")
            module = self._get_object(info.stage.module, "VkShaderModule")
            assert info.stage.pName == b"main"
            result = self._create_object("VkPipeline", None, takes=module.data["takes"])
            out[index] = result.handle
            held.data["content"] += struct.pack("<I", result.handle)
        return VK_SUCCESS

    def vkDestroyPipeline(self, device: int, handle: int, _: Any) -> None:
        self._destroy_object(handle, "VkPipeline")

    # --- command buffers

    def vkCreateCommandPool(self, device: int, info: Any, _: Any, out: Any) -> int:
        self._create_object("VkCommandPool", out)
        return VK_SUCCESS

    def vkDestroyCommandPool(self, device: int, handle: int, _: Any) -> None:
        pool = self._get_object(handle, "VkCommandPool")
        for item in self.live("VkCommandBuffer"):
            if item.data["pool"] is pool:
                self._destroy_object(item.handle, "VkCommandBuffer")
        self._destroy_object(handle, "VkCommandPool")

    def vkAllocateCommandBuffers(self, device: int, info: Any, out: Any) -> int:
        pool = self._get_object(info._obj.commandPool, "VkCommandPool")
        self._create_object("VkCommandBuffer", out, pool=pool, state="initial", commands=[], usage=0)
        return VK_SUCCESS

    def vkFreeCommandBuffers(self, device: int, pool: int, count: int, buffers: Any) -> None:
        self._destroy_object(buffers._obj, "VkCommandBuffer")

    def vkBeginCommandBuffer(self, buffer: int, info: Any) -> int:
        result = self._get_object(buffer, "VkCommandBuffer")
        assert result.data["state"] == "initial"
        result.data.update(state="recording", usage=info._obj.flags)
        return VK_SUCCESS

    def vkEndCommandBuffer(self, buffer: int) -> int:
        result = self.recording_buffer(buffer)
        result.data["state"] = "executable"
        barriers = sum(command[0] == "barrier" for command in result.data["commands"])
        self.most_barriers = max(self.most_barriers, barriers)
        return VK_SUCCESS

    def recording_buffer(self, buffer: int) -> FakeObject:
        result = self._get_object(buffer, "VkCommandBuffer")
        if result.data["state"] != "recording":
            raise FakeVulkanError(f"a command is recorded in {result}, which is {result.data['state']}")
        return result

    def _record_command(self, buffer: int, *command: Any) -> None:
        self.recording_buffer(buffer).data["commands"].append(command)

    def vkCmdBindPipeline(self, buffer: int, point: int, pipeline: int) -> None:
        self._record_command(buffer, "bind", self._get_object(pipeline, "VkPipeline"))

    def vkCmdPushConstants(
        self, buffer: int, layout: int, stages: int, offset: int, size: int, values: Any
    ) -> None:
        assert (stages, offset, size) == (api.VK_SHADER_STAGE_COMPUTE_BIT, 0, 8)
        self._record_command(buffer, "push", self._get_object(layout, "VkPipelineLayout"), values._obj.value)

    def vkCmdDispatch(self, buffer: int, x: int, y: int, z: int) -> None:
        self._record_command(buffer, "dispatch", (x, y, z))

    def vkCmdDispatchIndirect(self, buffer: int, handle: int, offset: int) -> None:
        result = self._get_object(handle, "VkBuffer")
        if offset % 4 or offset + 12 > result.data["size"]:
            raise FakeVulkanError(f"{result}: cannot read a grid at offset {offset}")
        self._record_command(buffer, "indirect", result, offset)

    def vkCmdPipelineBarrier(
        self, buffer: int, after: int, before: int, flags: int, count: int, barriers: Any, *_: Any
    ) -> None:
        assert count == 1
        self._record_command(
            buffer, "barrier", after, before, barriers._obj.srcAccessMask, barriers._obj.dstAccessMask
        )

    def vkCmdFillBuffer(self, buffer: int, handle: int, offset: int, size: int, dword: int) -> None:
        result = self._get_object(handle, "VkBuffer")
        if offset % 4 or size % 4 or offset + size > result.data["size"]:
            raise FakeVulkanError(f"{result}: {size} bytes at offset {offset} cannot be filled")
        self._record_command(buffer, "fill", result, offset, size, dword)

    def vkCmdCopyBuffer(self, buffer: int, source: int, target: int, count: int, regions: Any) -> None:
        region = regions._obj
        result, to = self._get_object(source, "VkBuffer"), self._get_object(target, "VkBuffer")
        for item, offset in ((result, region.srcOffset), (to, region.dstOffset)):
            if offset + region.size > item.data["size"]:
                raise FakeVulkanError(f"{item}: {region.size} bytes at offset {offset} extend beyond its end")
        self._record_command(buffer, "copy", result, region.srcOffset, to, region.dstOffset, region.size)

    # --- timelines and queues

    def vkCreateSemaphore(self, device: int, info: Any, _: Any, out: Any) -> int:
        kind = next(
            item for item in chained_structs(info._obj) if type(item).__name__ == "VkSemaphoreTypeCreateInfo"
        )
        assert kind.semaphoreType == api.VK_SEMAPHORE_TYPE_TIMELINE
        self._create_object("VkSemaphore", out, value=kind.initialValue, last=kind.initialValue)
        return VK_SUCCESS

    def vkDestroySemaphore(self, device: int, handle: int, _: Any) -> None:
        self._destroy_object(handle, "VkSemaphore")

    def vkQueueSubmit(self, queue: int, count: int, infos: Any, fence: int) -> int:
        if self.lost:
            raise VulkanError(VK_ERROR_DEVICE_LOST, "vkQueueSubmit")
        assert queue in self.queues and count == 1 and not fence
        info = infos._obj
        values = next(
            item for item in chained_structs(info) if type(item).__name__ == "VkTimelineSemaphoreSubmitInfo"
        )
        waits = self.semaphore_values(info.waitSemaphoreCount, info.pWaitSemaphores, values.pWaitSemaphoreValues)
        signals = self.semaphore_values(
            info.signalSemaphoreCount, info.pSignalSemaphores, values.pSignalSemaphoreValues
        )
        for semaphore, value in signals:
            if value <= semaphore.data["last"]:
                raise FakeVulkanError(
                    f"{semaphore}: value {value} is signalled after the larger value {semaphore.data['last']}"
                )
            semaphore.data["last"] = value
        assert info.commandBufferCount == 1
        buffer = self._get_object(read_u64s(info.pCommandBuffers, 1)[0], "VkCommandBuffer")
        if buffer.data["state"] != "executable":
            raise FakeVulkanError(f"{buffer} is submitted while it is {buffer.data['state']}")
        replayed = buffer.data["usage"] & api.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
        if not replayed and buffer.data.get("submitted"):
            raise FakeVulkanError(f"{buffer} is for one submission only, but is submitted again")
        buffer.data["submitted"] = True
        submission = FakeSubmission(queue, buffer, waits, signals)
        submission.uses = {buffer, *(semaphore for semaphore, _ in signals), *self.used_handles(buffer)}
        self.pending.append(submission)
        return VK_SUCCESS

    def vkWaitSemaphores(self, device: int, info: Any, timeout: int) -> int:
        wanted = info._obj
        ((semaphore, value),) = self.semaphore_values(1, wanted.pSemaphores, wanted.pValues)
        self._run_ready_submissions()
        return VK_SUCCESS if semaphore.data["value"] >= value else VK_TIMEOUT

    def vkGetSemaphoreCounterValue(self, device: int, handle: Any, out: Any) -> int:
        self._run_ready_submissions()
        out._obj.value = self._get_object(handle, "VkSemaphore").data["value"]
        return VK_SUCCESS

    def semaphore_values(self, count: int, handles: int, values: int) -> list[tuple[FakeObject, int]]:
        pairs = zip(read_u64s(handles, count), read_u64s(values, count), strict=True)
        return [(self._get_object(handle, "VkSemaphore"), value) for handle, value in pairs]

    def _run_ready_submissions(self) -> None:
        """Everything that can end does."""
        if self.lost:
            raise VulkanError(VK_ERROR_DEVICE_LOST, "vkWaitSemaphores")
        going = not self.stalled
        while going:
            going = False
            for queue in self.queues:
                first = next((item for item in self.pending if item.queue == queue), None)
                if first is None or any(item.data["value"] < value for item, value in first.waits):
                    continue
                if not self._execute_submission(first):
                    self.stalled = True
                    return
                self.pending.remove(first)
                for semaphore, value in first.signals:
                    semaphore.data["value"] = value
                going = True

    def vkGetDeviceFaultInfoEXT(self, device: int, counts: Any, info: Any) -> int:
        assert self.lost
        counts._obj.addressInfoCount = 1
        if info is not None:
            rows = api.find_struct_type("VkDeviceFaultAddressInfoEXT") * 1
            (row,) = rows.from_address(info._obj.pAddressInfos)
            row.addressType, row.reportedAddress, row.addressPrecision = 2, 0x7000, 4096
            info._obj.description = b"page fault"
        return VK_SUCCESS

    # --- queries

    def vkCreateQueryPool(self, device: int, info: Any, _: Any, out: Any) -> int:
        self._create_object("VkQueryPool", out, ticks=[None] * info._obj.queryCount)
        return VK_SUCCESS

    def vkDestroyQueryPool(self, device: int, handle: int, _: Any) -> None:
        self._destroy_object(handle, "VkQueryPool")

    def vkCmdResetQueryPool(self, buffer: int, pool: int, first: int, count: int) -> None:
        self._record_command(buffer, "reset", self._get_object(pool, "VkQueryPool"))

    def vkCmdWriteTimestamp(self, buffer: int, stage: int, pool: int, query: int) -> None:
        self._record_command(buffer, "timestamp", self._get_object(pool, "VkQueryPool"), query)

    def vkGetQueryPoolResults(
        self, device: int, pool: int, first: int, count: int, size: int, out: Any, stride: int, flags: int
    ) -> int:
        ticks = self._get_object(pool, "VkQueryPool").data["ticks"]
        if None in ticks:
            return VK_NOT_READY
        for index, tick in enumerate(ticks):
            out[index] = tick
        return VK_SUCCESS

    # --- what a submission does

    def used_handles(self, buffer: FakeObject) -> Iterator[FakeObject]:
        """Objects that must not be destroyed before it has ended: its handles, and buffers that its kernels access
        by address.
        """
        takes: Kernarg | None = None
        block = 0
        for command in buffer.data["commands"]:
            yield from (item for item in command if isinstance(item, FakeObject))
            if command[0] == "bind":
                takes = command[1].data["takes"]
            elif command[0] == "push":
                block = command[2]
            elif command[0] in ("dispatch", "indirect") and command[1] != (0, 0, 0):
                assert takes is not None
                where = self._buffer_at(block, "kernarg block")
                yield where
                for va in self._kernel_arguments(where, block, takes):
                    if va:
                        yield self._buffer_at(va, "argument")

    def _execute_submission(self, submission: FakeSubmission) -> bool:
        """False where it stands."""
        hazards = self._hazards[submission.queue]
        takes: Kernarg | None = None
        block = 0
        clock = itertools.count(1000)
        dispatches = 0
        for command in submission.buffer.data["commands"]:
            order = hazards.command()
            if command[0] in ("dispatch", "indirect"):
                if dispatches == self.stops_behind:
                    return False
                dispatches += 1
            match command:
                case ("bind", pipeline):
                    takes = self._get_object(pipeline.handle, "VkPipeline").data["takes"]
                case ("push", _, va):
                    block = va
                case ("barrier", *what):
                    hazards.barrier(*what)
                case ("dispatch", grid):
                    assert takes is not None
                    if grid != (0, 0, 0):
                        self._execute_dispatch(hazards, order, takes, block)
                case ("indirect", handle, offset):
                    assert takes is not None
                    va = self._get_object(handle.handle, "VkBuffer").data["va"] + offset
                    hazards.access(Access("an indirect grid", va, va + 12, INDIRECT, GRID_READ, order))
                    self._execute_dispatch(hazards, order, takes, block)
                case ("fill", target, offset, size, dword):
                    self._execute_transfer(hazards, order, target, offset, size, stores=True)
                    self._buffer_bytes(target)[offset : offset + size] = struct.pack("<I", dword) * (size // 4)
                case ("copy", source, source_offset, target, offset, size):
                    self._execute_transfer(hazards, order, source, source_offset, size, stores=False)
                    self._execute_transfer(hazards, order, target, offset, size, stores=True)
                    content = bytes(self._buffer_bytes(source)[source_offset : source_offset + size])
                    self._buffer_bytes(target)[offset : offset + size] = content
                case ("reset", pool):
                    pool.data["ticks"] = [None] * len(pool.data["ticks"])
                case ("timestamp", pool, query):
                    pool.data["ticks"][query] = next(clock)
        hazards.ended(repr(submission.buffer))
        return True

    def _execute_dispatch(self, hazards: Hazards, order: int, takes: Kernarg, block: int) -> None:
        where = self._buffer_at(block, "kernarg block")
        places = self.places.get(block, [])
        for index, (buffer, va) in enumerate(
            zip(takes.buffers, self._kernel_arguments(where, block, takes), strict=True)
        ):
            if not va:
                continue
            holds = self._buffer_at(va, buffer.name)
            start, end, name = va, holds.data["va"] + holds.data["size"], repr(holds)
            if places:
                start, end, name = places[index]
                if not start <= va < max(end, start + 1):
                    raise FakeVulkanError(f"{buffer.name} is {va:#x}: expected {name}, {start:#x} to {end:#x}")
            what = f"{buffer.name} of a dispatch with arguments at {block:#x}, {name}"
            hazards.access(Access(what, va, end, COMPUTE, SHADER_READ, order))
            if buffer.stored:
                hazards.access(Access(what, va, end, COMPUTE, SHADER_WRITE, order))

    def _execute_transfer(
        self, hazards: Hazards, order: int, buffer: FakeObject, offset: int, size: int, *, stores: bool
    ) -> None:
        start = self._get_object(buffer.handle, "VkBuffer").data["va"] + offset
        bit = TRANSFER_WRITE if stores else TRANSFER_READ
        what = f"a {'store' if stores else 'load'} of a transfer, {buffer}"
        hazards.access(Access(what, start, start + size, TRANSFER, bit, order))

    def _kernel_arguments(self, where: FakeObject, block: int, takes: Kernarg) -> tuple[int, ...]:
        start = block - where.data["va"]
        count = len(takes.buffers)
        return struct.unpack_from(f"<{count}Q", self._buffer_bytes(where), start)

    def _buffer_at(self, va: int, what: str) -> FakeObject:
        for item in self._objects.values():
            if item.kind == "VkBuffer" and item.data["va"] <= va < item.data["va"] + item.data["size"]:
                if item.freed:
                    raise FakeVulkanError(f"{what} is at {va:#x}, in {item}, which was freed")
                return item
        raise FakeVulkanError(f"{what} is at {va:#x}, outside every buffer")

    def _buffer_bytes(self, buffer: FakeObject) -> memoryview:
        memory = self._get_object(buffer.handle, "VkBuffer").data["memory"]
        content: memoryview = self._get_object(memory.handle, "VkDeviceMemory").data["memory"].view()
        return content

    # --- the end

    def vkDestroyDevice(self, device: int, _: Any) -> None:
        if self.pending:
            raise FakeVulkanError(f"the device is destroyed with {len(self.pending)} submissions in flight")
        if left := self.live():
            raise FakeVulkanError(f"not destroyed at the end: {', '.join(map(repr, left))}")

    def vkDestroyInstance(self, instance: int, _: Any) -> None:
        pass


def chained_structs(first: Any) -> Iterator[Any]:
    """A struct and all its pNext lead to."""
    yield first
    index = first.pNext
    while index:
        kind = ctypes.c_int32.from_address(index).value
        structure: Any = api.find_struct_type(STYPE_NAMES[kind]).from_address(index)
        yield structure
        index = structure.pNext


def read_u64s(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address)) if count else []
