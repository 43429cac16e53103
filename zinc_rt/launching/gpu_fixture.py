"""The object behind the fixture `gpu` of the pytest plugin, and the simulated GPU that a test process shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from zinc_rt.host.errors import CheckFailed
from zinc_rt.isa.target import CHIPS, TARGETS
from zinc_rt.launching.against import ComparedKernel, ReferenceComparison
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.launch import Launched, LaunchStopped, launch
from zinc_rt.launching.launch_findings import choose_tools
from zinc_rt.launching.located import format_finding
from zinc_rt.launching.suppressions import apply_suppressions, parse_suppressions, read_suppressions

if TYPE_CHECKING:
    from zinc_rt.launching.triton import TritonChip

WAVE = 32  # for the lanes in messages


class GpuSession:
    """The chip, tools and suppressions of a test run. Its device stays open between tests."""

    def __init__(
        self, chip: str, tools: tuple[str, ...] | None, files: Sequence[str], table: tuple[str, Sequence[Any]]
    ) -> None:
        """`files`: suppression files; `table`: a file's name and its entries.

        Raise UsageError for an unknown tool, InputError for a bad suppression.
        """
        choose_tools("full", tools)
        self.chip, self.tools = chip, tools
        self.suppressions = (*read_suppressions(files), *parse_suppressions(*table))
        self._chips: dict[tuple[str, bool], TritonChip] = {}  # by chip and order of lanes
        self._active: TritonChip | None = None

    def activate(
        self, chip: str, on_finding: Callable[[FindingGroup], None], *, reverse_lanes: bool = False
    ) -> TritonChip:
        """Make a simulated chip Triton's active driver."""
        from zinc_rt.launching.triton import TritonChip, check_chip

        key = chip, reverse_lanes
        if self._active is not None and self._active is not self._chips.get(key):
            self.deactivate()
        if key not in self._chips:
            options = replace(check_chip(chip, tools=self.tools), reverse_lanes=reverse_lanes)
            self._chips[key] = TritonChip(options, self.suppressions, None)
        selected = self._chips[key]
        selected.on_finding = on_finding
        if self._active is None:
            selected.clear()
            selected.activate()
            self._active = selected
        return selected

    def deactivate(self) -> None:
        """Restore Triton's own driver. The device stays open."""
        if self._active is not None:
            self._active.deactivate()
            self._active = None

    def close(self) -> None:
        self.deactivate()
        for chip in self._chips.values():
            chip.close()


class GpuFixture:
    """A simulated GPU for one test. `findings` contains the findings that are not suppressed and were not
    retrieved.
    """

    def __init__(self, session: GpuSession) -> None:
        self._session = session
        self._findings: list[FindingGroup] = []
        self._reported: list[str] = []
        self.launches = 0
        self.chip = session.chip
        self.reverse = False  # the last workgroups of each launch first
        self.reverse_lanes = False  # the highest lane of each memory instruction first

    @property
    def findings(self) -> tuple[FindingGroup, ...]:
        return tuple(self._findings)

    def launch(
        self,
        code: Any,
        kernel: str | None = None,
        *,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Mapping[str, Any],
        **options: Any,
    ) -> Launched:
        """Run a kernel as `zinc_rt.launch` does, on a simulated device. Its findings are added to `findings`; a
        launch that does not end raises LaunchStopped."""
        order = {"reverse": self.reverse, "reverse_lanes": self.reverse_lanes}
        options = {"tools": self._session.tools, "arch": self.chip, **order, **options}
        self.launches += 1
        try:
            result = launch(code, kernel, grid=grid, block=block, args=args, device="sim", **options)
        except LaunchStopped as stop:
            self._add_findings(stop.findings)
            raise
        self._add_findings(result.findings)
        return result

    def triton(self) -> TritonChip:
        """Make the GPU Triton's active driver until the test ends, and return it."""
        selected = self._session.activate(self.chip, self._add_finding, reverse_lanes=self.reverse_lanes)
        selected.driver.device.reverse = self.reverse
        return selected

    def retarget(self) -> None:
        """Redirect Triton's launches to `chip`, in the selected order, if the test uses Triton."""
        if self._session._active is not None:
            self.triton()

    def take_findings(self) -> tuple[FindingGroup, ...]:
        """Return the current findings and clear them, so that a test that expects findings does not fail."""
        taken, self._findings = tuple(self._findings), []
        return taken

    def assert_clean(self) -> None:
        """Fail the test, with FILE:LINE of each, if there are findings. Fail it also if nothing was launched."""
        if not self.launched:
            pytest.fail("no kernel was launched, so nothing was checked", pytrace=False)
        self.check()

    @property
    def launched(self) -> bool:
        active = self._session._active
        return bool(self.launches or (active is not None and active.launches))

    def check(self) -> None:
        """Fail the test if there are findings. The plugin calls it after the test function."""
        if self._findings:
            taken = self.take_findings()
            pytest.fail("\n".join(line for item in taken for line in format_finding(item, WAVE)), pytrace=False)

    def report(self) -> list[str]:
        """Return the first line of each finding of the test, including retrieved ones."""
        return self._reported

    def against(
        self,
        reference: Callable[..., Any],
        *,
        sizes: Sequence[int],
        inputs: Sequence[Any] | Callable[[np.random.Generator, int], Sequence[np.ndarray]] = (np.float32,),
        ulps: int = 0,
        rtol: float = 0.0,
        atol: float = 0.0,
        chips: Sequence[str] | None = None,
        seed: int = 0,
    ) -> Callable[[Callable[..., None]], None]:
        """Return a function that compares a kernel with a reference, used as a decorator:

            @gpu.against(lambda x, y: x + y, sizes=(1, 31, 1000), inputs=(np.float32, np.float32))
            def check(out, x, y):
                add[(triton.cdiv(out.size, 256),)](x, y, out, out.size, BLOCK=256)

        See zinc_rt.launching.against for the cases. The first failing case is reduced and fails the test.
        """
        compared = ComparedKernel(reference, inputs, ulps, rtol, atol)

        def run_all(run: Callable[..., None]) -> None:
            failure = ""
            try:
                ReferenceComparison(self, compared, run, seed).check(
                    sizes, chips or (self.chip, _choose_other_chip(self.chip))
                )
            except CheckFailed as error:
                failure = str(error)
            self.take_findings()
            if failure:
                pytest.fail(failure, pytrace=False)

        return run_all

    def _add_finding(self, finding: FindingGroup) -> None:
        self._add_findings((finding,))

    def _add_findings(self, findings: Sequence[FindingGroup]) -> None:
        left = apply_suppressions(findings, self._session.suppressions).left
        self._findings += left
        self._reported += [format_finding(item, WAVE)[0] for item in left]


def _choose_other_chip(chip: str) -> str:
    """Return a second simulated chip of the same generation."""
    from zinc_rt.sim.chips import ALIASES

    generation = TARGETS[chip].generation
    others = (row.name for row in CHIPS if row.generation == generation and row.name != chip)
    return next(name for name in others if name in ALIASES)
