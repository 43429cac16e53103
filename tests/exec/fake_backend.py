"""A backend for exec's tests: variants are callables, run by a HostExecutor; buffers are bytearrays."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.exec import Buffer, DeadlineMissed, Fence, HostExecutor, Stream


class FakeBackend:
    def __init__(self, workers: int = 2) -> None:
        self.executor = HostExecutor("fake", workers=workers)

    def submit(self, variant: Callable[[], None], stream: Stream) -> Fence:
        return self.executor.submit(variant, stream)

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        buffer.storage[offset_bytes : offset_bytes + data.nbytes] = data

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        return memoryview(buffer.storage)[offset_bytes : offset_bytes + size_bytes].toreadonly()

    def copy(
        self,
        source: Buffer,
        source_offset_bytes: int,
        target: Buffer,
        target_offset_bytes: int,
        size_bytes: int,
        stream: Stream,
    ) -> Fence:
        def run() -> None:
            read = source.storage[source_offset_bytes : source_offset_bytes + size_bytes]
            target.storage[target_offset_bytes : target_offset_bytes + size_bytes] = read

        return self.submit(run, stream)

    def buffer(self, name: str, size_bytes: int) -> Buffer:
        return Buffer(name, size_bytes, "host_visible", storage=bytearray(size_bytes))

    def close(self) -> None:
        self.executor.close()


class DeadFence:
    """Never signals."""

    value = 1

    def done(self) -> bool:
        return False

    def wait(self, timeout_seconds: float) -> None:
        raise DeadlineMissed(f"fence of a dead queue not reached within {timeout_seconds:g} s")


class DeadBackend(FakeBackend):
    """Accepts all work and finishes none, like a hung queue."""

    def submit(self, variant: Callable[[], None], stream: Stream) -> Fence:
        return DeadFence()
