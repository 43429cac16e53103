"""Torch programs that use the device cuda, on the CPU: what `zinc-rt sanitize` does to them.

Tensors are created on the CPU and report is_cuda; torch.cuda describes the simulated chip, with streams and events
that do nothing, since launches are synchronous.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from zinc_rt.launching.triton_driver import SimulatedEvent
from zinc_rt.sim.chips import find_chip as chip_row

_CUDA = re.compile(r"cuda(:\d+)?")
_HIP_VERSION = "7.0.0"  # torch.version.hip, which programs ask to recognise AMD


def alias_cuda_to_cpu(chip: str) -> None:
    """Make torch's device "cuda" an alias of the CPU."""
    import torch

    if torch.cuda.is_available():
        return  # a program on a machine with a card chooses for itself
    from torch.overrides import TorchFunctionMode

    def to_cpu(value: Any) -> Any:
        if isinstance(value, str) and _CUDA.fullmatch(value):
            return torch.device("cpu")
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return value

    is_cuda = torch.Tensor.is_cuda.__get__

    class CudaOnCpu(TorchFunctionMode):
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func == is_cuda:
                return True
            if func is torch.Tensor.cuda:
                return args[0]
            if "device" in kwargs:
                kwargs = {**kwargs, "device": to_cpu(kwargs["device"])}
            if func is torch.Tensor.to:
                args = tuple(to_cpu(argument) for argument in args)
            return func(*args, **kwargs)

    mode = CudaOnCpu()
    mode.__enter__()
    node = torch.autograd.function.BackwardCFunction
    apply = node.apply

    def apply_with_mode(self: Any, *args: Any) -> Any:
        with mode:  # torch suspends it in Tensor.backward, which calls functions of the program here
            return apply(self, *args)

    node.apply = apply_with_mode
    for name, value in _list_functions(torch, chip).items():
        setattr(torch.cuda, name, value)
    torch.version.hip = _HIP_VERSION
    if not hasattr(torch.cpu, "set_stream"):
        torch.cpu.set_stream = _make_empty_function()


def _make_empty_function() -> Callable[..., None]:
    """Return a new function that does nothing: torch.compile wants different objects under different names."""

    def function(*_: Any, **__: Any) -> None:
        return None

    return function


class SimulatedStream:
    """A CUDA-like stream. A launch has ended when it returns, so waiting returns at once."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        event = SimulatedEvent() if event is None else event
        event.record(self)
        return event


def _list_functions(torch: Any, chip: str) -> dict[str, Any]:
    row = chip_row(chip)
    major, minor = row.target // 10000, row.target // 100 % 100
    properties = SimpleNamespace(
        name=row.name,
        major=major,
        minor=minor,
        total_memory=row.vram_bytes,
        multi_processor_count=row.cus // 2,
        gcnArchName=row.gfx,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=65536,
        shared_memory_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        L2_cache_size=row.l2_kib << 10,
        is_integrated=row.integrated,
    )
    stream = SimulatedStream()
    constants: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": row.name,
        "get_device_capability": (major, minor),
        "get_device_properties": properties,
        "current_stream": stream,
        "default_stream": stream,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "mem_get_info": (row.vram_bytes, row.vram_bytes),
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
    }
    functions: dict[str, Any] = {name: _make_constant(value) for name, value in constants.items()}
    for name in ("synchronize", "set_device", "set_stream", "empty_cache", "init", "_lazy_init"):
        functions[name] = _make_empty_function()
    for name in ("reset_peak_memory_stats", "manual_seed", "manual_seed_all", "ipc_collect"):
        functions[name] = _make_empty_function()
    for name in ("device", "device_of", "stream"):
        functions[name] = lambda *_, **__: nullcontext()
    functions["Event"] = SimulatedEvent
    functions["Stream"] = SimulatedStream
    return functions


def _make_constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value
