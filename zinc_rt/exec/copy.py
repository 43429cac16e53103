"""Copy bytes between buffers on the device, in a stream's order."""

from __future__ import annotations

from typing import Protocol

from zinc_rt.exec.buffer import Buffer
from zinc_rt.exec.fence import Fence
from zinc_rt.exec.stream import Stream


class Copier(Protocol):
    """The backend interface that a copy needs."""

    def copy(
        self,
        source: Buffer,
        source_offset_bytes: int,
        target: Buffer,
        target_offset_bytes: int,
        size_bytes: int,
        stream: Stream,
    ) -> Fence:
        """Submit the copy. It starts after the stream's earlier submissions and every fence in `stream.waits`;
        later submissions on the stream see the bytes."""


def copy(
    copier: Copier,
    source: Buffer,
    source_offset_bytes: int,
    target: Buffer,
    target_offset_bytes: int,
    size_bytes: int,
    stream: Stream,
) -> Fence:
    """Submit a copy without waiting. It is ordered as a replay: by its stream, and by events between streams.

    Both buffers count as in flight until the fence: the host's writes and views are refused. Raise ValueError for
    bytes outside a buffer, and for overlapping source and target.
    """
    what = f"copy {source.name} to {target.name}"
    source.check_inside(source_offset_bytes, size_bytes, what)
    target.check_inside(target_offset_bytes, size_bytes, what)
    distance = target_offset_bytes - source_offset_bytes
    comparable = source is target
    if source.gpu_va is not None and target.gpu_va is not None:  # a window may lie on the other one
        comparable, distance = True, distance + target.gpu_va - source.gpu_va
    if comparable and abs(distance) < size_bytes:
        raise ValueError(
            f"{what}: {size_bytes} bytes from offset {source_offset_bytes} to {target_offset_bytes} overlap, so "
            "the result would depend on the order of copying; copy through another buffer"
        )
    fence = copier.copy(source, source_offset_bytes, target, target_offset_bytes, size_bytes, stream)
    stream.record_submission(fence)
    source.usage.add_fence(fence)
    if target.usage is not source.usage:
        target.usage.add_fence(fence)
    return fence
