"""A process of its own for validation layers, which read their names from the environment: `python under_layers.py
[wrong]`. Runs kernels in every way a backend has, and a model's steps; with `wrong` one wrong call."""

from __future__ import annotations

import sys

from kernels.spirv.harness import SpirvBench

from zinc_rt.backends.vulkan.backend import VulkanOptions
from zinc_rt.backends.vulkan.commands import CmdFillBuffer
from zinc_rt.backends.vulkan.device import list_devices
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.kernels.cases import parse
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.model.gguf import read_gguf

WAYS = (VulkanOptions(), VulkanOptions(debug=True), VulkanOptions(staged=True), VulkanOptions(guarded=True))
CASES = (
    "ADD T=3 N=1000 seed=5 tokens=9",
    "MATMUL T=2 N=18 K=1280 one=1 dtype=q4_k vector=bf16 values=outliers seed=11 tokens=64 -bias",
)


def main(wrong: bool) -> None:
    device = next(device for device in list_devices() if not device.missing)
    if wrong:
        with SpirvBench(device) as bench:
            backend = bench.backend
            buffer = backend.alloc(64, BufferHeap.HOST_VISIBLE, "filled")
            backend.run_now("a wrong call", [CmdFillBuffer(buffer.storage.block.handle, 2, 4)])
        return
    for options in WAYS:
        with SpirvBench(device, options) as bench:
            for line in CASES:
                bench.check(parse(line))
    with SpirvBench(device, VulkanOptions()) as bench:
        engine = Engine(read_gguf(FOLDER / "qwen35moe-q.gguf"), bench.backend, ctx=64)
        session = engine.open()
        for tokens in ([1, 2, 3, 4, 5], [6], [7]):
            engine.extend(session, tokens)
        engine.release(session)


if __name__ == "__main__":
    main(wrong=sys.argv[1:] == ["wrong"])
    print("ran")
