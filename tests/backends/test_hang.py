"""Hangs as evidence: the bundle names the packet, the fence, the fault's allocation and the submission."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest
from fake_gpu import FakeGpu, FakeSide

from zinc_rt.backends import registry
from zinc_rt.backends.amd import ring as rings
from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.fence import FenceCorrupt
from zinc_rt.backends.amd.hang import SCHEMA, Hang
from zinc_rt.backends.amd.kmd_log import KmsgLog, record_text
from zinc_rt.backends.amd.kmd_side import Incident
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.base import Device
from zinc_rt.exec import Stream
from zinc_rt.pm4 import BAD_OPCODE, gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import EncodeError
from zinc_rt.pm4.packets import Nop, WaitRegMem, WriteData

SOON = 0.01


class Log:
    missing = ""

    def lines(self) -> tuple[str, ...]:
        return ("[12.000001] amdgpu: something the kernel said",)


class Bench:
    def __init__(self, folder: Path | None, *, kind: str = "kfd", **options) -> None:
        self.gpu = FakeGpu(kind=kind)
        self.side = FakeSide(self.gpu)
        self.backend = AmdBackend(
            self.side,
            registry.spec("t1"),
            Device("fake", "gfx1201", simulated=True, profile="plain memory"),
            AmdOptions(hang_folder=folder, ring_bytes=4096, timeout_seconds=0.05, **options),
        )
        self.stream = Stream("main")
        self.flag = self.backend.alloc(4096, "host_visible", "flag")

    def submit(self, *packets, name: str = "program"):
        variant = self.backend.build(PacketList(packets, name), {})
        return self.backend.submit(variant, self.stream)

    def wait_for_hang(self, fence) -> Hang:
        with pytest.raises(Hang) as caught:
            fence.wait(SOON)
        return caught.value


@pytest.fixture
def bench(tmp_path: Path):
    bench = Bench(tmp_path / "hangs", log=Log())
    yield bench
    try:
        bench.backend.close(drain_seconds=0.0)
    finally:
        assert bench.gpu.resources() == {}


def test_wait_that_never_completes_is_reported_with_its_address(bench: Bench) -> None:
    bench.submit(WriteData(bench.flag.gpu_va + 8, (1,)), name="good").wait(1.0)
    hang = bench.wait_for_hang(bench.submit(WaitRegMem(bench.flag.gpu_va, 42), name="waits"))
    assert "fence 2 not reached within 0.01 s" in str(hang)
    report = hang.report
    assert report.why.startswith("rptr stands at the beginning of waits: its first packet does not end")
    assert "INDIRECT_BUFFER" in report.last_packet
    assert "WAIT_REG_MEM" in report.ib and "(flag)" in report.ib and "0000002a" in report.ib
    assert [submission.state for submission in report.submissions] == ["finished", "not fetched"]
    assert report.submissions[1].ib_name == "waits"
    assert report.fence.guard is None and (report.fence.seen, report.fence.submitted) == (1, 2)


def test_wait_in_the_ring_itself_is_located_at_rptr(bench: Bench) -> None:
    ring = bench.backend.ring(bench.stream)
    fence = ring.submit(ring.encode((Nop((1, 2)), WaitRegMem(bench.flag.gpu_va, 1), Nop()), "handmade"))
    report = bench.wait_for_hang(fence).report
    assert report.why == "the command processor stopped in handmade"
    assert report.last_packet.startswith("last read: NOP 3 dwords")
    assert "; next: WAIT_REG_MEM" in report.last_packet
    marked = [line for line in report.window.splitlines() if line.startswith("rptr>")]
    assert len(marked) == 1 and "WAIT_REG_MEM" in marked[0]


def test_window_starts_at_a_packet_when_the_ring_wraps(bench: Bench) -> None:
    ring = bench.backend.ring(bench.stream)
    ring.submit(ring.encode((Nop((0,) * 1000),), "filler")).wait(1.0)
    fence = ring.submit(ring.encode((Nop((0,) * 10), WaitRegMem(bench.flag.gpu_va, 1)), "across the end"))
    report = bench.wait_for_hang(fence).report
    assert ring.wptr_dw > ring.ring_dw
    assert "BAD" not in report.window
    assert "rptr> 0x003fc" in report.window or "rptr> 0x00003" in report.window
    assert "WAIT_REG_MEM" in report.last_packet


def test_illegal_packet_is_located_in_the_indirect_buffer(bench: Bench) -> None:
    variant = bench.backend.build(PacketList((Nop(),), "broken"), {})
    view = variant.storage.view().cast("I")
    view[10] = 0xC0000000 | BAD_OPCODE << 8
    report = bench.wait_for_hang(bench.backend.submit(variant, bench.stream)).report
    assert report.why.startswith("an illegal packet stops the queue: indirect buffer 0x000a: opcode")
    assert "OVERWRITTEN: 1 dwords differ from what was built, first 0x000a" in report.ib
    assert "BAD: opcode" in report.ib
    view.release()


def test_fault_ends_the_wait_at_once_and_names_allocation_and_submission(tmp_path: Path) -> None:
    bench = Bench(tmp_path, debug=False)  # the linter would refuse it
    weights = bench.backend.alloc(4096, "device_local", "weights")
    bench.submit(WriteData(bench.flag.gpu_va, (1,)), name="innocent").wait(1.0)
    fence = bench.submit(WriteData(weights.gpu_va + 4096 - 4, (1, 2, 3)), name="culprit")
    behind = bench.submit(Nop(), name="behind")
    with pytest.raises(Hang) as caught:
        fence.wait(60.0)
    report = caught.value.report
    assert report.faults[0].allocation == "weights"
    assert report.faults[0].submissions == ("culprit",)
    assert "GPU page fault" in report.why and "named by culprit" in report.why
    assert "fence 2 will not be reached" in str(caught.value)
    # The queues are gone for good: later fences end with the same hang, and nothing more is taken.
    assert behind.done()
    with pytest.raises(Hang):
        behind.wait(0.0)
    with pytest.raises(Hang):
        bench.submit(Nop())


def test_lost_doorbell_is_distinguished_from_hanging_work(bench: Bench) -> None:
    bench.gpu.lost_doorbells = True
    report = bench.wait_for_hang(bench.submit(Nop(), name="lost")).report
    assert "the doorbell did not arrive" in report.why
    assert "0: never written" in report.text()


def test_unwritten_fence_is_reported(bench: Bench) -> None:
    fence = bench.submit(Nop(), name="silent")
    bench.side.works = False
    bench.gpu.run(1)  # the indirect buffer, but not the fence
    ring = bench.backend.ring(bench.stream)
    ring.queue.rptr.host.view.cast("I")[0] = ring.wptr_dw
    report = bench.wait_for_hang(fence).report
    assert report.why.startswith("all was fetched, but silent does not finish")
    assert [submission.state for submission in report.submissions] == ["fetched"]


def test_overwritten_poison_is_reported(bench: Bench) -> None:
    ring = bench.backend.ring(bench.stream)
    bench.side.works = False
    fence = ring.submit(ring.encode((Nop(),), "stray"))
    ctypes.c_uint64.from_address(ring.timeline.address + 16).value = 1
    report = bench.wait_for_hang(fence).report
    assert "poison beside the fence was overwritten" in report.why
    assert f"{ring.timeline.gpu_va + 16:#x} holds 0x1" in report.text()


def test_unknown_fence_value_raises_fence_corrupt(bench: Bench) -> None:
    ring = bench.backend.ring(bench.stream)
    fence = ring.submit(ring.encode((Nop(),), "one"))
    ctypes.c_uint64.from_address(ring.timeline.address).value = 77
    with pytest.raises(FenceCorrupt, match="0x4d, but 1 is the last value submitted"):
        fence.wait(1.0)


def test_stray_write_to_wptr_is_reported(bench: Bench) -> None:
    bench.side.works = False
    fence = bench.submit(Nop(), name="one")
    ring = bench.backend.ring(bench.stream)
    ring.queue.wptr.host.view.cast("Q")[0] = 5
    assert "wptr's memory holds 5" in bench.wait_for_hang(fence).report.why


def test_wptr_in_bytes_is_reported(bench: Bench) -> None:
    bench.side.works = False
    ring = bench.backend.ring(bench.stream)
    publish = ring._publish
    ring._publish = lambda target, wptr, source, count: wptr + 4 * (publish(target, wptr, source, count) - wptr)
    reason = bench.wait_for_hang(bench.submit(Nop(), name="one")).report.why
    assert reason == "wptr moved by 48 for one, which has 12 dwords; it counts bytes where dwords are meant"


def test_fence_that_leaves_stores_in_l2_is_rejected(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    caches = gcr.release(Generation.GFX12, GLV_INV=1, GL2_INV=1, SEQ=1)
    monkeypatch.setitem(rings.RELEASE_CACHES, Generation.GFX12, caches)
    with pytest.raises(EncodeError, match="does not write back L2") as refused:
        bench.submit(Nop(), name="one")
    assert "set GL2_WB" in str(refused.value)


def test_full_ring_is_reported_as_a_hang(bench: Bench) -> None:
    bench.side.works = False
    variant = bench.backend.build(PacketList((Nop(),), "again"), {})
    with pytest.raises(Hang, match="no room for 12 dwords") as caught:
        for _ in range(1000):
            bench.backend.submit(variant, bench.stream)
    assert caught.value.report.ring.wptr_dw == 85 * 12


def test_hang_bundle_contains_report_ring_and_submissions(bench: Bench, tmp_path: Path) -> None:
    bench.side.incidents.clear()
    hang = bench.wait_for_hang(bench.submit(WaitRegMem(bench.flag.gpu_va, 1), name="waits"))
    folder = hang.bundle
    assert folder is not None and folder.parent == tmp_path / "hangs"
    assert str(folder / "report.txt") in str(hang)
    text = (folder / "report.txt").read_text()
    for part in ("hang ", "why ", "WAIT_REG_MEM", "poison   intact", "simulated, plain memory", "the kernel said"):
        assert part in text
    report = json.loads((folder / "report.json").read_text())
    assert report["schema"] == SCHEMA
    assert report["ring"]["wptr_dw"] == 12 and report["generation"] == "gfx12"
    assert report["submissions"][0]["name"] == "waits"
    assert len((folder / "ring.bin").read_bytes()) == 4096
    ib = (folder / "ib.bin").read_bytes()
    assert len(ib) % 32 == 0 and report["ib_words_bytes"] == len(ib)
    assert "something the kernel said" in (folder / "kernel.log").read_text()
    assert not (folder / "devcoredump.bin").exists()
    second = bench.wait_for_hang(
        bench.backend.ring(bench.stream).submit(bench.backend.ring(bench.stream).encode((), "x"))
    )
    assert second.bundle != folder, "every hang has a folder of its own"


def test_new_core_dump_is_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.side.works = False

    class DriverWithLog:
        simulated = True

        def list_dir(self, path: str) -> list[str]:
            return ["devcd7", "disabled"]

        def read_file(self, path: str) -> bytes:
            assert path == "/sys/class/devcoredump/devcd7/data"
            return b"the dump"

    bench.gpu.driver = DriverWithLog()
    hang = bench.wait_for_hang(bench.submit(Nop()))
    assert hang.bundle is not None
    assert (hang.bundle / "devcoredump.bin").read_bytes() == b"the dump"
    bench.backend.close(drain_seconds=0.0)


def test_unwritable_folder_never_hides_the_hang(tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("")
    bench = Bench(file)
    bench.side.works = False
    hang = bench.wait_for_hang(bench.submit(Nop()))
    assert hang.bundle is None
    assert "no bundle was saved" in str(hang) and "taken" in str(hang)
    bench.backend.close(drain_seconds=0.0)


def test_reset_ends_every_wait(bench: Bench) -> None:
    bench.side.works = False
    fence = bench.submit(Nop())
    bench.side.incidents.append(Incident("reset", "the whole GPU was reset after a hang; VRAM was lost"))
    with pytest.raises(Hang, match="VRAM was lost"):
        fence.wait(60.0)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"6,339,12345678,-;amdgpu: page fault\n SUBSYSTEM=pci\n", "[12.345678] amdgpu: page fault"),
        (b"no record", "no record"),
    ],
)
def test_kernel_log_records(record: bytes, text: str) -> None:
    assert record_text(record) == text


def test_unreadable_kernel_log_is_reported(tmp_path: Path) -> None:
    log = KmsgLog(str(tmp_path / "kmsg"))
    assert log.lines() == ()
    assert "cannot be read: No such file" in log.missing
