"""Outputs of a launch, and the elements of them that no wave stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zinc_rt.kmd.driver import SideChannel
from zinc_rt.kmd.transport import DeviceBuffer
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.values import LaunchBuffer


def outputs_of(matched: list[tuple[Any, str, Any]]) -> dict[str, LaunchBuffer]:
    """Return the buffers that are read back, by the name given for them."""
    return {name: value for _, name, value in matched if isinstance(value, LaunchBuffer) and value.out}


def unwritten_outputs(
    side: SideChannel, outputs: Mapping[str, LaunchBuffer], buffers: Mapping[str, DeviceBuffer]
) -> Iterator[FindingGroup]:
    """Return a finding for each `out` buffer with elements of which a byte was never stored."""
    for name, output in outputs.items():
        array = output.array
        if output.read or not array.size:
            continue
        bits = np.frombuffer(side.initialised(buffers[name].gpu_va, array.nbytes), np.uint8)
        stored = np.unpackbits(bits, count=array.nbytes, bitorder="little")
        missing = np.flatnonzero(~(stored.reshape(-1, array.itemsize) == 1).all(axis=1))
        if missing.size:
            first = list(np.unravel_index(missing[0], array.shape))
            index = ", ".join(str(axis) for axis in first)
            text = f"{missing.size} of {array.size} elements were never written; the first is {name}[{index}]"
            yield FindingGroup("unwritten-output", 1, text, False)
