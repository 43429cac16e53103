"""Streams of other programs judge the runtime's decoder and the simulated device alike: neither wrote them."""

from __future__ import annotations

import struct

import pytest
from sim.cp.cp_support import CpBench
from sim.outside_streams import CODE, IB, SDMA, STREAMS, OutsideStream

from zinc_rt.pm4 import Generation
from zinc_rt.pm4.decode import BadPacket, decode_stream
from zinc_rt.sim.cp.decode import PacketForms
from zinc_rt.sim.cp.execute import EXECUTE
from zinc_rt.sim.interfaces import QueueKind, QueueState
from zinc_rt.sim.tables.sdma_packets import PACKETS as SDMA_PACKETS

PM4 = [stream for stream in STREAMS if stream.kind is not SDMA]


def stream_name(stream: OutsideStream) -> str:
    return stream.name


@pytest.mark.parametrize("stream", PM4, ids=stream_name)
def test_runtime_decodes_streams_as_intended(stream: OutsideStream) -> None:
    items = decode_stream(stream.words, Generation.GFX12)
    assert [getattr(item.packet, "NAME", item.packet) for item in items] == [name for name, _ in stream.says]
    for item, (_, fields) in zip(items, stream.says, strict=True):
        assert not isinstance(item.packet, BadPacket)
        assert {key: getattr(item.packet, key) for key in fields} == dict(fields)
        words = item.packet.words(Generation.GFX12)
        assert words == list(stream.words[item.offset : item.offset + item.length])


@pytest.mark.parametrize("stream", PM4, ids=stream_name)
def test_device_decodes_streams_as_intended(stream: OutsideStream) -> None:
    forms, index = PacketForms(EXECUTE, Generation.GFX12), 0
    for name, fields in stream.says:
        form = forms.of(stream.words[index])
        packet = form.view(stream.words, index)
        assert form.row.name == name
        assert {key: getattr(packet, key) for key in fields} == dict(fields)
        index += form.dwords
    assert index == len(stream.words)


@pytest.mark.parametrize("stream", STREAMS, ids=stream_name)
def test_device_executes_streams_as_intended(stream: OutsideStream) -> None:
    bench = CpBench()
    for va, dwords in stream.before.items():
        bench.space.put(va, *dwords)
    queue = bench.queue(stream.kind, eop=stream.kind is not SDMA)
    if stream.name == "kfdtest-fence-in-a-nop":  # its addresses are those of the buffer it runs from
        bench.space.put(IB, *stream.words, *[0xFFFF1000] * (-len(stream.words) % 8))
        queue.send([0xC0023F00, IB, 0, 1 << 23 | len(stream.words) + -len(stream.words) % 8])
    else:
        queue.send(stream.words)
    assert queue.state is QueueState.ACTIVE, queue.report
    for va, dwords in stream.after.items():
        assert struct.unpack(f"<{len(dwords)}I", bench.space.read(va, 4 * len(dwords))) == dwords
    # no engine runs waves here, and kfdtest writes its fence into the buffer it runs from
    assert set(bench.kmd.rules()) - {"no-shader-engine", "written-after-fetch"} == stream.rules
    assert tuple(what for kind, what in bench.kmd.heard if kind == "interrupt") == stream.interrupts
    assert queue.hardware.rptr in (len(stream.words) * queue.unit, 4 * queue.unit), "not all of it was read"


def test_kfdtest_dispatch_fetches_its_code() -> None:
    """The registers went where the program meant them: code that may not run is what faults."""
    (stream,) = (stream for stream in STREAMS if stream.name == "kfdtest-dispatch")
    bench = CpBench()
    bench.space.allowed[(CODE - 0x10000) // 4096].clear()
    queue = bench.queue(QueueKind.KFD_COMPUTE)
    queue.send(stream.words)
    assert queue.state is QueueState.HUNG and f"{CODE:#x}" in queue.report


def test_streams_cover_all_required_packets() -> None:
    assert len(STREAMS) >= 24 and len({stream.name for stream in STREAMS}) == len(STREAMS)
    packets = {name for stream in STREAMS for name, _ in stream.says}
    assert packets >= {
        *("WRITE_DATA", "RELEASE_MEM", "ACQUIRE_MEM", "WAIT_REG_MEM", "INDIRECT_BUFFER", "SET_SH_REG"),
        *("DISPATCH_DIRECT", "COPY_DATA", "DMA_DATA", "EVENT_WRITE", "ATOMIC_MEM", "PROTECTED_FENCE_SIGNAL"),
    }
    codes = {(words[0] & 0xFF, words[0] >> 8 & 0xFF) for words in (s.words for s in STREAMS if s.kind is SDMA)}
    assert codes <= SDMA_PACKETS.keys() and len(codes) >= 5
