"""Triton on a simulated GPU: `install()` makes a simulated chip Triton's active driver.

import zinc_rt.launching.triton as simulated
chip = simulated.install()
kernel[grid](x, y, n)      # torch CPU tensors or NumPy arrays
chip.assert_clean()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from zinc_rt.host.errors import CheckFailed, UnsupportedError, UsageError
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.finding_places import find_place
from zinc_rt.launching.launch import LaunchStopped
from zinc_rt.launching.located import format_finding
from zinc_rt.launching.suppressions import Suppression, apply_suppressions
from zinc_rt.launching.triton_device import CheckedLaunch, ChipOptions, TritonKernelCode
from zinc_rt.launching.triton_driver import WARP, SimulatedDriver
from zinc_rt.launching.triton_memory import ArrayArgument
from zinc_rt.sim.chips import find_chip as chip_row

VERSIONS = ("3.7", "3.8", "3.9")  # of triton, tried in tests/launching
OnFinding = Callable[[FindingGroup], None]
OnChange = Callable[[TritonKernelCode, Sequence[FindingGroup], Sequence[FindingGroup]], None]

_installed: list[TritonChip] = []


class TritonChip:
    """The simulated chip that Triton launches on. Returned by `install`; `uninstall` restores Triton.

    `findings` of all launches: those of one rule, kernel, source line and access are one, with their count.
    """

    def __init__(
        self, options: ChipOptions, suppressions: Sequence[Suppression], on_finding: OnFinding | None
    ) -> None:
        self.options = options
        self.launches = 0
        self.driver = SimulatedDriver(options, self._record_launch)
        self._suppressions = tuple(suppressions)
        self.on_finding = on_finding
        self._findings: dict[tuple[object, ...], FindingGroup] = {}
        self._remarks: dict[tuple[object, ...], FindingGroup] = {}
        self._undo: list[Callable[[], None]] = []
        self.on_change: OnChange | None = None  # called after a launch, with what it reports

    @property
    def findings(self) -> tuple[FindingGroup, ...]:
        """The findings that are not suppressed."""
        return apply_suppressions(self._findings.values(), self._suppressions).left

    @property
    def remarks(self) -> tuple[FindingGroup, ...]:
        return tuple(self._remarks.values())

    def clear(self) -> None:
        """Forget all findings and remarks."""
        self._findings.clear()
        self._remarks.clear()
        self.launches = 0

    def assert_clean(self) -> None:
        """Raise CheckFailed with all findings if there are any, or if no kernel was launched."""
        if not self.launches:
            raise CheckFailed("no Triton kernel was launched, so nothing was checked")
        if self.findings:
            raise CheckFailed(
                "\n".join(line for finding in self.findings for line in format_finding(finding, WARP))
            )

    def close(self) -> None:
        """Close the GPU; the next launch opens a new one."""
        self.driver.device.close()

    def deactivate(self) -> None:
        """Make Triton's former driver active again; the GPU stays open."""
        while self._undo:
            self._undo.pop()()

    def uninstall(self) -> None:
        """Make Triton's former driver active again, and close the GPU."""
        self.deactivate()
        self.close()
        if self in _installed:
            _installed.remove(self)

    def _record_launch(self, kernel: TritonKernelCode, done: CheckedLaunch | LaunchStopped) -> None:
        self.launches += 1
        for finding in done.findings:
            if _add_group(self._findings, finding) and self.on_finding is not None:
                left = apply_suppressions((finding,), self._suppressions).left
                for one in left:
                    self.on_finding(one)
        remarks = done.remarks if isinstance(done, CheckedLaunch) else ()
        for remark in remarks:
            _add_group(self._remarks, remark)
        if self.on_change is not None:
            self.on_change(kernel, done.findings, remarks)

    def activate(self) -> None:
        """Make this chip Triton's active driver."""
        import triton.runtime
        import triton.testing
        from triton.runtime.jit import JITFunction

        config = triton.runtime.driver
        former, bench, run = config._active, triton.testing.do_bench, JITFunction.run
        config.set_active(self.driver)
        triton.testing.do_bench = self.driver.do_bench

        def run_with_arrays(function: Any, *args: Any, **kwargs: Any) -> Any:
            return run(
                function,
                *[_copy_argument(argument) for argument in args],
                **{name: _copy_argument(item) for name, item in kwargs.items()},
            )

        JITFunction.run = run_with_arrays
        functions = [(JITFunction, "run", run), (triton.testing, "do_bench", bench), (config, "_active", former)]

        def undo() -> None:
            _forget_compiled()  # first: a kernel unloads itself from the active driver
            for owner, name, value in functions:
                setattr(owner, name, value)

        _forget_compiled()
        self._undo.append(undo)


def _forget_compiled() -> None:
    """Drop kernels that were compiled and loaded for another driver."""
    from triton.runtime import jit

    for function in list(getattr(jit, "_triton_jit_function_registry", {}).values()):
        function.device_caches.clear()


def _copy_argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ArrayArgument(value)
    if isinstance(value, tuple) and any(isinstance(item, (np.ndarray, tuple)) for item in value):
        parts = [_copy_argument(item) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _add_group(groups: dict[tuple[object, ...], FindingGroup], group: FindingGroup) -> bool:
    """Add a finding to the groups. Return whether it is of a new place."""
    key = find_place(group)
    before = groups.get(key)
    groups[key] = group if before is None else replace(before, count=before.count + group.count)
    return before is None


def install(
    chip: str = DEFAULT_ARCH,
    *,
    sanitizer: str = "full",
    tools: Sequence[str] | None = None,
    coherence: str | None = None,
    reorder: int | None = None,
    timeout_seconds: float | None = None,
    suppressions: Sequence[Suppression] = (),
    on_finding: OnFinding | None = None,
) -> TritonChip:
    """Make a simulated chip Triton's active driver, and return it. An installed chip is replaced.

    `chip`: gfx1201, gfx1200, gfx1100 or gfx1151. `sanitizer`, `tools`, `coherence`, `reorder`: as for
    `zinc_rt.launch`. `timeout_seconds` of one launch. `on_finding` is called with each finding of a new place.

    Raise UsageError without triton, or for an unknown chip; UnsupportedError for another version of triton, or a
    chip whose waves are not simulated.
    """
    options = check_chip(chip, sanitizer, tools, coherence, reorder)
    if timeout_seconds is not None:
        options = replace(options, timeout_seconds=timeout_seconds)
    for item in list(_installed):
        item.uninstall()
    installed = TritonChip(options, suppressions, on_finding)
    installed.activate()
    _installed.append(installed)
    return installed


def find_installed() -> TritonChip | None:
    """Return the chip that Triton launches on now, or None."""
    return _installed[-1] if _installed else None


def check_chip(
    chip: str,
    sanitizer: str = "full",
    tools: Sequence[str] | None = None,
    coherence: str | None = None,
    reorder: int | None = None,
) -> ChipOptions:
    """Return the options of a chip. Raise the errors of `install`."""
    _check_version()
    try:
        chip_row(chip)
    except ValueError as error:
        raise UsageError(str(error)) from None
    options = ChipOptions(chip, sanitizer, tuple(tools) if tools is not None else None, coherence, reorder)
    options.machine()  # an unknown tool is an error now
    return options


def _check_version() -> None:
    try:
        import triton  # noqa: F401

        number = version("triton")
    except (ImportError, PackageNotFoundError):
        where = sys.executable
        raise UsageError(
            f"the package triton is not installed in {where}", next="pip install 'zinc-rt[triton]'"
        ) from None
    if number.rpartition(".")[0] not in VERSIONS:
        raise UnsupportedError(
            f"unsupported triton version {number}: expected {VERSIONS[0]} to {VERSIONS[-1]}",
            next="pip install 'zinc-rt[triton]'",
        )
