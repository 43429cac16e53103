"""Makes the Hang of a backend: looks at the ring, asks the kernel, saves the bundle."""

from __future__ import annotations

from pathlib import Path

from zinc_rt.backends.amd import examine
from zinc_rt.backends.amd.addresses import AddressMap
from zinc_rt.backends.amd.hang import Hang, HangReport
from zinc_rt.backends.amd.kernel_log import DriverLog, KernelLog, Log, core_dump, core_dumps
from zinc_rt.backends.amd.kernel_side import KernelSide
from zinc_rt.backends.amd.ring import AmdRing
from zinc_rt.backends.base import Device


class Reporter:
    """Remembers from the start what is old: log lines and core dumps."""

    def __init__(
        self,
        side: KernelSide,
        addresses: AddressMap,
        tier: str,
        device: Device,
        *,
        folder: Path | None,
        log: Log | None = None,
        seen: examine.Seen | None = None,
    ) -> None:
        """`seen`: what a simulated device knows of a fault in a page, by queue id and address."""
        self.folder = folder
        self._side = side
        self._addresses = addresses
        self._tier = tier
        self._device = device
        self._seen = seen
        self._log = log or (DriverLog(side.transport.driver) if device.simulated else KernelLog())
        self._old_dumps = core_dumps(side.transport.driver)

    def hang(self, ring: AmdRing, what: str) -> Hang:
        """With its bundle saved, or the reason why not."""
        report = self.examine(ring, what)
        if self.folder is None:
            return Hang(report, None, "no folder was given for it")
        try:
            return Hang(report, report.save(self.folder))
        except OSError as error:
            return Hang(report, None, f"{self.folder}: {error.strerror or error}")

    def examine(self, ring: AmdRing, what: str) -> HangReport:
        """The state of one ring now. Changes nothing on the device."""
        ring.look()
        addresses = self._addresses
        shown = examine.window(ring, addresses)
        stuck = examine.stuck_submission(ring)
        ib = stuck.batch.ib if stuck is not None else None
        code = examine.ib_words(ib) if ib is not None else ()
        refused = examine.illegal(shown, code, ring, addresses)
        faults, faulty = examine.fault_states(ring, addresses, self._seen)
        return HangReport(
            what=what,
            why=examine.why(ring, faults, refused),
            last_packet=shown.last_packet,
            ring=examine.ring_state(ring),
            fence=examine.fence_state(ring),
            submissions=examine.submission_states(ring),
            window=shown.text,
            ib=examine.ib_text(ib, code, ring.generation, addresses) if ib is not None else "",
            illegal=refused,
            incidents=tuple(each.text for each in self._side.incidents),
            faults=faults,
            generation=ring.generation,
            device=self._device,
            tier=self._tier,
            kernel_log=self._log.lines(),
            kernel_log_missing=self._log.missing,
            ring_words=bytes(ring.queue.ring.host.view),
            ib_words=examine.as_bytes(code),
            core_dump=core_dump(self._side.transport.driver, self._old_dumps),
            node=next((each.node for each in self._side.incidents if each.node is not None), faulty),
        )

    def close(self) -> None:
        if isinstance(self._log, KernelLog):
            self._log.close()
