"""A queue for probes: the runtime's ring, its fence, and evidence when a deadline is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.backends.amd import stopped_ring
from zinc_rt.backends.amd.fence import SLOT_BYTES, TimelineFence
from zinc_rt.backends.amd.hang_reporter import HangReporter
from zinc_rt.backends.amd.kmd_side import KmdSide, wait_until_or_incident
from zinc_rt.backends.amd.publish import load_publisher
from zinc_rt.backends.amd.ring import RELEASE_CACHES, AmdRing
from zinc_rt.kmd.topology import format_arch_name
from zinc_rt.kmd.transport import Queue
from zinc_rt.pm4.generation import Generation, generation_of
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import IndirectBuffer, ReleaseMem
from zinc_rt.probes.kit.mapped_buffer import POISON32, MappedBuffer
from zinc_rt.probes.outcome import Evidence, Outcome, ProbeStuck

FENCE_AT = 0  # in the scratch memory; the rest is free from here
FREE_AT = 256
SCRATCH_BYTES = 1 << 16


@dataclass(frozen=True)
class RawDwords(Packet):
    """Raw dwords, for packets that the encoder refuses to create."""

    dwords: tuple[int, ...] = ()

    def words(self, generation: Generation) -> list[int]:
        return list(self.dwords)


class ProbeQueue:
    """A queue with its ring and fence. `memory` is poisoned GTT memory of the GPU; its first 256 bytes
    belong to the fence. `gone` returns the driver's reply to a simple query if the GPU no longer responds."""

    def __init__(
        self,
        kmd_queue: Queue,
        memory: MappedBuffer,
        *,
        name: str,
        side: KmdSide,
        reporter: HangReporter,
        poll_seconds: float,
        gone: Callable[[], str],
    ) -> None:
        memory.poison()
        self.memory = memory
        self.generation = find_generation(kmd_queue)
        self._side, self._reporter, self._poll_seconds, self._gone = side, reporter, poll_seconds, gone
        self.ring = AmdRing(
            kmd_queue,
            side,
            name=name,
            generation=self.generation,
            slot=(memory.address + FENCE_AT, memory.gpu_va + FENCE_AT),
            publish=load_publisher(),
            make_hang=lambda ring, what: self.make_stuck_error(what),
            full_seconds=poll_seconds,
        )

    @property
    def kmd_queue(self) -> Queue:
        return self.ring.queue

    # --- submitting ---

    def run(self, packets: Iterable[Packet], name: str = "packets") -> None:
        """Publish without a fence."""
        self.ring.run(packets, name)

    def raw(self, words: Sequence[int], name: str = "dwords") -> None:
        self.ring.run([RawDwords(tuple(words))], name)

    def submit(self, packets: Iterable[Packet], name: str = "packets") -> TimelineFence:
        return self.ring.submit(self.ring.encode(packets, name))

    def finish(self, packets: Iterable[Packet], name: str = "packets", seconds: float | None = None) -> None:
        """Publish with a fence at the end and wait for it. Raises Stuck."""
        self.submit(packets, name).wait(self._poll_seconds if seconds is None else seconds)

    def put_ib(self, memory: MappedBuffer, packets: Iterable[Packet], offset: int = 0) -> IndirectBuffer:
        """Write packets to `memory` at `offset` and return the packet that runs them."""
        words = [word for packet in packets for word in packet.words(self.generation)]
        memory.put(offset, b"".join(word.to_bytes(4, "little") for word in words))
        return self.make_ib(memory.gpu_va + offset, len(words))

    def make_ib(self, va: int, size_dw: int, *, chain: int = 0) -> IndirectBuffer:
        return IndirectBuffer(va, size_dw, inherit_vmid=int(self.kmd_queue.inherits_vmid), chain=chain)

    def release(self, va: int, value: int, **more: Any) -> ReleaseMem:
        """Return a RELEASE_MEM like that of the ring's own fence."""
        return ReleaseMem(va, value, RELEASE_CACHES[self.generation], **more)

    # --- waiting ---

    def parsed(self, seconds: float | None = None) -> None:
        """Wait until all published packets have been read: rptr == wptr. Raises Stuck."""

        def read() -> bool:
            self.ring.look()
            return self.ring.consumed_dw == self.ring.wptr_dw

        self.until(read, "rptr does not reach wptr", seconds)

    def until(
        self,
        reached: Callable[[], bool],
        what: str,
        seconds: float | None = None,
        *,
        fence: Callable[[], str] | None = None,
        symptom: str = "",
    ) -> None:
        """Wait for `reached`. Raises Stuck with the evidence if the deadline passes or the kernel reports that the
        wait can never succeed.
        """
        limit = self._poll_seconds if seconds is None else seconds
        wait_until_or_incident(self._side, reached, limit)
        if not reached():
            raise self.make_stuck_error(
                f"{what} within {limit:g} s", fence=fence() if fence else "", symptom=symptom
            )

    def wait_for_value32(self, offset: int, want: int, what: str, seconds: float | None = None) -> None:
        """Wait until the dword at `offset` of the scratch memory becomes `want`."""
        self.until(
            lambda: self.memory.u32(offset) == want,
            what,
            seconds,
            fence=lambda: f"{self.memory.u32(offset):#x} (expected {want:#x})",
        )

    # --- evidence ---

    def collect_evidence(self, fence: str = "") -> Evidence:
        ring = self.ring
        ring.look()
        state = stopped_ring.read_fence_state(ring)
        return Evidence(
            ring.wptr_dw,
            ring.consumed_dw,
            ring.ring_dw,
            fence or f"{state.memory:#x} of {state.submitted:#x}",
            state.guard or "intact",
        )

    def make_stuck_error(self, what: str, *, fence: str = "", symptom: str = "") -> ProbeStuck:
        """Return the outcome of a missed deadline, with all available evidence."""
        side = self._side
        side.look()
        evidence = self.collect_evidence(fence)
        hang = self._reporter.examine(self.ring, what)
        seen = tuple(
            dict.fromkeys(f"{incident.kind}: {take_first_line(incident.text)}" for incident in side.incidents)
        )
        lost = next(
            (take_first_line(incident.text) for incident in side.incidents if incident.kind == "lost"),
            self._gone(),
        )
        word = "gpu-gone" if lost else symptom or evidence.symptom
        reason = f"{what}: {lost or take_first_line(hang.why)}"
        return ProbeStuck(
            Outcome("fail", reason, word, evidence=evidence, faults=seen, report=hang.text(), hang=hang)
        )

    def close(self) -> None:
        self.ring.close()


def take_first_line(text: str) -> str:
    return text.partition("\n")[0]


def find_generation(queue: Queue) -> Generation:
    return generation_of(format_arch_name(queue.generation))


assert FREE_AT >= SLOT_BYTES and POISON32  # the scratch memory begins behind the fence's slot
