"""What a simulated device says of a kernel: its name, the line it was written in, the node, all as fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from zinc_rt.backends.amd.instrument import AmdInstrument
from zinc_rt.backends.amd.loaded_kernels import make_label
from zinc_rt.backends.amd.packet_list import AmdExecutable
from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.sets import BinaryKernelSet, KernelSet, find_kernel_set
from zinc_rt.sim.interfaces import CodePlace, DeviceFinding
from zinc_rt.sim.stores import ObservedStore

KERNELS = find_kernel_set("gfx1201")
NODE = Node(Op.ADD, ("a", "b"), ("c",), label="sum")
EARLIER = Node(Op.ADD, ("x", "y"), ("a",), label="earlier")
UNKNOWN: Any = None  # parts of an executable that no finding needs
EXECUTABLE = AmdExecutable(
    "graph",
    UNKNOWN,
    UNKNOWN,
    ((0, EARLIER), (8, NODE)),
    placed={UNKNOWN: [(0x1000, 64, "old"), (0x1000, 64, "a"), (0x2000, 64, "b")]},
)
PACKET = 0x8000


class Device:
    """A fake instrument. `again` counts resets of the report limit."""

    def __init__(self, *findings: DeviceFinding) -> None:
        self.found = list(findings)
        self.again = 0

    def findings(self) -> Sequence[DeviceFinding]:
        return self.found

    def tell_again(self) -> None:
        self.again += 1

    def watchpoint_hits(self) -> Sequence[ObservedStore]:
        return [ObservedStore("kernel swiglu+0x0", "", "global_store_b32", 0x20, (3, 0, 0), 1, 7, 0x100, 5)]


def make_finding(kernel: str, pc: int, rule: str = "uninitialised-vgpr") -> DeviceFinding:
    sentence = f"queue 1 at dword 0x20c: {kernel}: {rule} at pc 0x{pc:x} `v_add_f32 v0`, wave 0"
    location = CodePlace(kernel, pc, "v_add_f32 v0", (2, 0, 0), 0, 0xF)
    return DeviceFinding(Severity.FINDING, rule, 1, 0x20C, sentence, PACKET, location)


def make_instrument(*findings: DeviceFinding, kernels: KernelSet | None = KERNELS) -> AmdInstrument:
    assert isinstance(kernels, BinaryKernelSet)
    """An instrument of a device that finds these after it was opened."""
    device: Any = Device()
    named: Any = None  # nothing is handed over here
    instrument = AmdInstrument(
        device, kernels.load, lambda queue, va: (NODE, EXECUTABLE) if (queue, va) == (1, PACKET) else None, named
    )
    device.found += findings
    return instrument


def test_findings_before_the_backend_was_opened_are_excluded() -> None:
    device: Any = Device(make_finding("kernel argmax+0x0", 0), make_finding("kernel argmax+0x0", 8))
    named: Any = None
    instrument = AmdInstrument(device, KERNELS.load, lambda queue, va: (NODE, EXECUTABLE), named)
    assert instrument.findings() == [] and device.again == 1, "and would be reported again"
    device.found.append(make_finding("kernel argmax+0x0", 0))
    assert [finding.pc for finding in instrument.findings()] == [0]


def test_pc_in_our_kernel_resolves_to_its_line() -> None:
    [output] = make_instrument(make_finding("kernel argmax+0x0", 0)).findings()
    assert output.text.startswith("uninitialised-vgpr: queue 1 at dword 0x20c: kernel argmax+0x0: ")
    assert f" at pc 0x0 ({output.source}) `v_add_f32 v0`, wave 0" in output.sentence
    assert output.source.startswith("argmax.s:")
    assert (output.kernel, output.pc, output.instruction) == ("argmax", 0, "v_add_f32 v0")
    assert (output.group, output.wave, output.lanes, output.node) == ((2, 0, 0), 0, 0xF, NODE)


@pytest.mark.parametrize(
    ("kernel", "pc"), [("kernel somebody_elses+0x0", 0), ("kernel argmax+0x0", 0xFFFFF0), ("user code+0x40", 0)]
)
def test_foreign_code_is_left_unchanged(kernel: str, pc: int) -> None:
    argument = make_finding(kernel, pc)
    [output] = make_instrument(argument).findings()
    assert output.sentence == argument.sentence and not output.source


RULES = ("sgpr-read", "wait")


def test_remark_for_radv_code_is_a_finding_for_other_code() -> None:
    """Whichever set asks: backends of both may share the device."""
    radv = find_kernel_set("radv")
    assert isinstance(radv, BinaryKernelSet) and isinstance(KERNELS, BinaryKernelSet)
    for kernels in (KERNELS, radv):
        own = [make_finding(f"{make_label('argmax', KERNELS.load('argmax'))}+0x0", 0, rule) for rule in RULES]
        assert [finding.rule for finding in make_instrument(*own, kernels=kernels).findings()] == list(RULES)
        theirs = [make_finding(f"{make_label('argmax', radv.load('argmax'))}+0x0", 0, rule) for rule in RULES]
        [output] = make_instrument(*theirs, kernels=kernels).findings()
        assert output.rule == "wait" and output.kernel == "argmax" and not output.source


@pytest.mark.parametrize(
    ("address", "ending"),
    [
        (0x1010, "wave 0; operand a, which node earlier did not write there"),
        (0x2010, "wave 0; operand b"),  # an input of the graph
        (0x3000, "wave 0"),
    ],
)
def test_unwritten_memory_names_the_operand_and_its_writer(address: int, ending: str) -> None:
    finding = make_finding("kernel argmax+0x0", 0, "uninitialised-memory")
    assert finding.place is not None
    [output] = make_instrument(replace(finding, place=replace(finding.place, address=address))).findings()
    assert output.sentence.endswith(ending)


def test_finding_outside_any_kernel_has_no_location() -> None:
    finding = DeviceFinding(
        Severity.FINDING, "missing-barrier", 2, 0, "dispatch 1 reads what dispatch 0 writes", PACKET
    )
    [output] = make_instrument(finding, finding).findings()
    assert (output.text, output.pc, output.node) == (f"missing-barrier: {finding.sentence}", None, None)


def test_watchpoint_store_names_only_the_kernel() -> None:
    [store] = make_instrument().watchpoint_hits()
    assert (store.kernel, store.pc, store.wave, store.lane, store.value) == ("swiglu", 0x20, 1, 7, 5)
