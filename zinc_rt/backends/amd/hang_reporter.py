"""Create the Hang error of a backend: examine the ring, query the kernel, save the bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from zinc_rt.backends.amd import stopped_ring
from zinc_rt.backends.amd.addresses import AddressMap
from zinc_rt.backends.amd.hang import Hang, HangReport
from zinc_rt.backends.amd.kmd_log import KmdLog, KmsgLog, SimulatedLog, find_core_dump, list_core_dumps
from zinc_rt.backends.amd.kmd_side import KmdSide
from zinc_rt.backends.amd.packet_list import encode_words
from zinc_rt.backends.amd.ring import AmdRing
from zinc_rt.backends.base import Device


class HangReporter:
    """Reporter of hangs. It records existing log lines and core dumps at creation, to ignore them later."""

    def __init__(
        self,
        side: KmdSide,
        addresses: AddressMap,
        tier: str,
        device: Device,
        *,
        folder: Path | None,
        log: KmdLog | None = None,
        find_fault: stopped_ring.FindFault | None = None,
        find_waves: Callable[[int], tuple[str, ...]] | None = None,
    ) -> None:
        """Record the current state. `find_fault` returns a simulated device's details about a page fault, by queue
        id and address. `find_waves` returns the positions of a queue's waves.
        """
        self.folder = folder
        self._side = side
        self._addresses = addresses
        self._tier = tier
        self._device = device
        self._find_fault, self._find_waves = find_fault, find_waves
        self._log = log or (SimulatedLog(side.transport.driver) if device.simulated else KmsgLog())
        self._old_dumps = list_core_dumps(side.transport.driver)

    def hang(self, ring: AmdRing, what: str) -> Hang:
        """Create a Hang for `ring`. The error has the path of the saved bundle, or the reason why none was
        saved.
        """
        report = self.examine(ring, what)
        if self.folder is None:
            return Hang(report, None, "no folder was given for it")
        try:
            return Hang(report, report.save(self.folder))
        except OSError as error:
            return Hang(report, None, f"{self.folder}: {error.strerror or error}")

    def examine(self, ring: AmdRing, what: str) -> HangReport:
        """Report the current state of one ring. This changes nothing on the device."""
        ring.look()
        addresses = self._addresses
        shown = stopped_ring.read_window(ring, addresses)
        stuck = stopped_ring.find_stuck_submission(ring)
        ib = stuck.ready.ib if stuck is not None else None
        code = stopped_ring.read_ib(ib) if ib is not None else ()
        refused = stopped_ring.find_illegal_packets(shown, code, ring, addresses)
        faults, faulty = stopped_ring.describe_faults(ring, addresses, self._find_fault)
        return HangReport(
            what=what,
            why=stopped_ring.find_likely_cause(ring, faults, refused),
            last_packet=shown.last_packet,
            ring=stopped_ring.read_ring_state(ring),
            fence=stopped_ring.read_fence_state(ring),
            submissions=stopped_ring.list_submission_states(ring),
            window=shown.text,
            ib=stopped_ring.format_ib(ib, code, ring.generation, addresses) if ib is not None else "",
            illegal=refused,
            incidents=tuple(incident.text for incident in self._side.incidents),
            faults=faults,
            waves=self._find_waves(ring.queue.queue_id) if self._find_waves is not None else (),
            generation=ring.generation,
            device=self._device,
            tier=self._tier,
            kmd_log=self._log.lines(),
            kmd_log_missing=self._log.missing,
            ring_words=bytes(ring.queue.ring.host.view),
            ib_words=encode_words(code),
            core_dump=find_core_dump(self._side.transport.driver, self._old_dumps),
            node=next((incident.node for incident in self._side.incidents if incident.node is not None), faulty),
        )

    def close(self) -> None:
        if isinstance(self._log, KmsgLog):
            self._log.close()
