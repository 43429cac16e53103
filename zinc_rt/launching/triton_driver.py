"""Triton's driver interface on a simulated chip (triton.backends.driver.DriverBase, triton 3.7 to 3.9)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.launching.launch import LaunchStopped
from zinc_rt.launching.triton_arguments import Argument, list_arguments
from zinc_rt.launching.triton_device import CheckedLaunch, ChipOptions, TritonDevice, TritonKernelCode
from zinc_rt.launching.triton_memory import make_pointer
from zinc_rt.sim.chips import MAX_WAVES_PER_SIMD, Chip, find_chip

WARP = 32
LDS_BYTES = 65536
OnLaunch = Callable[[TritonKernelCode, CheckedLaunch | LaunchStopped], None]


class SimulatedUtils:
    """The interface that Triton requires of a device: its properties, and loading code."""

    def __init__(self, device: TritonDevice) -> None:
        self._device = device
        self.source: Path | None = None  # of the kernel that is loaded next: Triton makes its launcher first

    def get_device_properties(self, device: int | None = 0) -> dict[str, Any]:
        """Return the properties under the names that Triton's HIP driver uses."""
        row = find_chip(self._device.options.chip)
        processors = row.cus // 2  # HIP counts workgroup processors on RDNA
        simds = 2 * row.simds_per_cu
        return {
            "max_shared_mem": LDS_BYTES,
            "max_num_regs": simds * count_vgprs_per_simd(row) * WARP,
            "multiprocessor_count": processors,
            "sm_clock_rate": row.engine_mhz * 1000,
            "mem_clock_rate": row.memory_mhz * 1000,
            "mem_bus_width": row.vram_width_bits,
            "arch": row.gfx,
            "warpSize": WARP,
            "max_threads_per_sm": simds * MAX_WAVES_PER_SIMD * WARP,
            "cooperativeLaunch": True,
        }

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: int
    ) -> tuple[TritonKernelCode, TritonKernelCode, int, int, int]:
        """Return (module, function, VGPRs, spills, largest workgroup)."""
        loaded, self.source = self._device.load(kernel, name, self.source), None
        blocks = (loaded.kernel.rsrc1 & 0x3F) + 1  # GRANULATED_WORKITEM_VGPR_COUNT: 8 VGPRs in wave32, AMDGPUUsage
        return loaded, loaded, 8 * blocks, loaded.kernel.private_bytes // 4, loaded.kernel.max_threads

    def unload_module(self, module: TritonKernelCode) -> None:
        if sys is not None and not sys.is_finalizing():
            self._device.unload(module)

    def set_printf_fifo_size(self, size_bytes: int) -> None:
        """Do nothing: device_print has no fixed buffer here."""


def count_vgprs_per_simd(row: Chip) -> int:
    """Return the VGPRs of a SIMD for wave32, per lane, from the size of a CU's register file."""
    return row.vgpr_bytes_per_cu // (row.simds_per_cu * WARP * 4)


class SimulatedLauncher:
    """Launches one compiled kernel (triton.backends.amd.driver.HIPLauncher)."""

    def __init__(self, driver: SimulatedDriver, source: Any, metadata: Any) -> None:
        self._driver = driver
        self._signature = dict(source.signature)
        self._metadata = metadata
        if metadata.num_ctas != 1:
            raise UnsupportedError(
                f"{metadata.name}: num_ctas={metadata.num_ctas} is not supported: RDNA has no clusters of "
                "workgroups"
            )

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: Any,
        function: TritonKernelCode,
        kernel_metadata: Any,
        launch_metadata: Any,
        enter: Any,
        leave: Any,
        *values: Any,
    ) -> None:
        grid = (int(grid_x), int(grid_y), int(grid_z))
        if 0 in grid:
            return  # as on a card: nothing runs
        arguments = list_arguments(self._signature, values)
        arguments |= self._scratch(grid, function, len(arguments), stream)
        if enter is not None:
            enter(launch_metadata)
        self._driver.launch(function, grid, self._metadata, arguments)
        if leave is not None:
            leave(launch_metadata)

    def _scratch(
        self, grid: tuple[int, int, int], function: TritonKernelCode, count: int, stream: Any
    ) -> dict[str, Argument]:
        """Return the pointers that Triton appends to the arguments: global and profile scratch memory."""
        from triton.runtime import _allocation

        names = ("global_scratch", "profile_scratch")
        appended = len(function.kernel.shown) - count
        if not 0 <= appended <= len(names):
            listed = "; ".join(map(str, function.kernel.shown))
            raise UnsupportedError(
                f"{function.kernel.name}: the signature has {count} arguments, but the code has: {listed}",
                next="this version of Triton may pass them in another way; 3.7 to 3.9 are known",
            )
        scratch: dict[str, Argument] = {}
        for name in names[len(names) - appended :]:
            size = getattr(self._metadata, f"{name}_size", 0)
            align = getattr(self._metadata, f"{name}_align", 1)
            total = size * grid[0] * grid[1] * grid[2]
            if not total:
                scratch[name] = None
            elif name == "global_scratch":
                scratch[name] = make_pointer(name, _allocation._allocator.get()(total, align, stream))
            else:
                scratch[name] = make_pointer(name, np.zeros(total + align, np.uint8))
        return scratch


class SimulatedDriver:
    """Triton's driver for a simulated chip. `on_launch` receives the kernel name and result of each launch."""

    def __init__(self, options: ChipOptions, on_launch: OnLaunch) -> None:
        self.device = TritonDevice(options)
        self.utils = SimulatedUtils(self.device)
        self.options = options
        self._on_launch = on_launch
        self._counted: list[CheckedLaunch] | None = None
        self._noted = False  # what do_bench returns

    # --- as triton.backends.driver.DriverBase ---

    @classmethod
    def is_active(cls) -> bool:
        return True

    def launcher_cls(self, source: Any, metadata: Any) -> SimulatedLauncher:
        function = getattr(getattr(source, "fn", None), "fn", None)
        code = getattr(function, "__code__", None)
        self.utils.source = Path(code.co_filename) if code is not None else None
        return SimulatedLauncher(self, source, metadata)

    def map_python_to_cpp_type(self, ty: str) -> str:
        from triton.backends.amd.driver import ty_to_cpp

        return str(ty_to_cpp(ty))

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", find_chip(self.options.chip).gfx, WARP)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return SimulatedInterface

    def get_benchmarker(self) -> Any:
        return self.do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        return np.zeros(1, np.int32)

    def clear_cache(self, cache: Any) -> None:
        """Do nothing: caches have no effect on the counters."""

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        if device not in (0, None):
            raise UnsupportedError(f"device {device} does not exist: the only simulated chip is device 0")

    def get_current_stream(self, device: int | None = 0) -> int:
        return 0

    def get_device_capability(self, device: int | None = 0) -> tuple[int, int]:
        target = find_chip(self.options.chip).target
        return target // 10000, target // 100 % 100

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> np.ndarray:
        return np.zeros(size, np.uint8)

    # --- launches ---

    def launch(
        self, loaded: TritonKernelCode, grid: tuple[int, int, int], metadata: Any, arguments: dict[str, Argument]
    ) -> None:
        """Run a kernel. Raise LaunchStopped if it did not end."""
        lds_bytes = max(metadata.shared - loaded.kernel.group_bytes, 0)
        threads = metadata.num_warps * getattr(metadata, "warp_size", WARP)
        counted = self._counted is not None
        try:
            result = self.device.run(loaded, grid, threads, arguments, lds_bytes, counted=counted)
        except LaunchStopped as stop:
            self._on_launch(loaded, stop)
            raise
        if self._counted is not None:
            self._counted.append(result)
        self._on_launch(loaded, result)

    def do_bench(
        self,
        fn: Callable[[], Any],
        warmup: int = 25,
        rep: int = 100,
        grad_to_none: Any = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
    ) -> Any:
        """Run `fn` once and return a number for its time in ms from simulated counters, in place of
        triton.testing.do_bench. It ranks configurations roughly and is no measurement of a card. Without a launch
        it is the time of the host."""
        start = time.perf_counter()
        with self.count_launches() as launches:
            fn()
        milliseconds = sum(compute_simulated_ms(item, find_chip(self.options.chip)) for item in launches)
        milliseconds = milliseconds if launches else (time.perf_counter() - start) * 1000
        self._note_simulated(bool(launches))
        if quantiles is not None:
            return [milliseconds] * len(quantiles) if len(quantiles) > 1 else milliseconds
        return [milliseconds] if return_mode == "all" else milliseconds

    def _note_simulated(self, launched: bool) -> None:
        """Explain once on stderr what the numbers of do_bench mean."""
        if launched and not self._noted:
            self._noted = True
            text = "do_bench: times are estimates from simulated counters, and say nothing about a card's speed"
            print(f"zinc-rt: {text}", file=sys.stderr)

    @contextmanager
    def count_launches(self) -> Any:
        """Collect the launches of a `with` block, with counters."""
        before, self._counted = self._counted, []
        launches = self._counted
        try:
            yield launches
        finally:
            self._counted = before
            if before is not None:
                before += launches


def compute_simulated_ms(done: CheckedLaunch, row: Chip) -> float:
    """Return the larger of two lower bounds in ms: one wave instruction per SIMD and cycle, and all bytes at the
    bandwidth of the memory."""
    instructions_per_ms = row.cus * row.simds_per_cu * row.engine_mhz * 1000
    bytes_per_ms = row.memory_mhz * 1000 * 2 * row.vram_width_bits / 8
    return float(max(done.instructions / instructions_per_ms, done.bytes / bytes_per_ms, 1e-6))


class SimulatedEvent:
    """A CUDA-like event. The elapsed time is that of the host: a launch has ended when it returns."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Return at once."""

    def elapsed_time(self, end: SimulatedEvent) -> float:
        return max((end.at - self.at) * 1000, 1e-6)


class SimulatedInterface:
    """The part of torch.cuda that Triton's testing uses."""

    Event = SimulatedEvent

    @staticmethod
    def synchronize(device: Any = None) -> None:
        """Return at once: launches are synchronous."""

    @staticmethod
    def current_device() -> int:
        return 0
