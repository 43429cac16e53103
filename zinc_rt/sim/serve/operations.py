"""Operations of a served device on requests of clients: one row per operation."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.sim.driver.files import DmaBufFile
from zinc_rt.sim.driver.host_mappings import map_host
from zinc_rt.sim.driver.process import Process
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.memory.buffers import Bo
from zinc_rt.sim.serve.remote_memory import CarriedMemory, LaunchTable, RemoteMemory, map_pages
from zinc_rt.sim.serve.wire import MAX_ARRAY_BYTES, WireMessage

FINDINGS_A_MESSAGE = 4000  # of some hundred bytes each; a header holds 16 MiB
_INT = struct.Struct("<i")


class ClientSession:
    """One client process, over one or more connections; a driver in this process performs its requests."""

    def __init__(self, token: str, machine: SimMachine, process: Process, memory: RemoteMemory) -> None:
        self.token, self.machine, self.process, self.memory = token, machine, process, memory
        self.driver = SimDriver(machine, process)
        self.connections = 0
        self.mapped: dict[int, Bo | None] = {}
        self.mappings = 0

    def interrupt(self, thread: int) -> None:
        """End the wait that this thread performs for a connection that was closed."""
        with self.machine.changed:
            self.process.interrupted.add(thread)
            self.machine.changed.notify_all()

    def end(self) -> None:
        """End the session of a client that has disconnected."""
        self.driver.exit()
        for bo in self.mapped.values():
            if bo is not None:
                bo.remove_host_mapping()


def answer(session: ClientSession, message: WireMessage) -> WireMessage:
    """Answer a request, with an errno if the kernel would return one or if the request is invalid."""
    operation = OPERATIONS.get(str(message.header.get("op")))
    try:
        if operation is None:
            raise OSError(errno.ENOSYS, "unknown request")
        answered = operation(session, message)
        return answered if isinstance(answered, WireMessage) else WireMessage(answered or {})
    except OSError as error:
        return WireMessage(_make_refusal(error))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return WireMessage({"errno": errno.EINVAL, "message": f"a malformed request: {error!r}"})


def _make_refusal(error: OSError) -> dict[str, Any]:
    return {"errno": error.errno or errno.EIO, "message": error.strerror or str(error)}


def _answer_ioctl(session: ClientSession, message: WireMessage) -> WireMessage:
    header = message.header
    size = int(header["size"])
    arg, index = bytearray(message.body[:size]), size
    carried = CarriedMemory(pid=session.process.pid if header.get("memory") == "process" else 0)
    for address, length, comes in header["arrays"]:
        content = (
            bytearray(message.body[index : index + length]) if comes else bytearray(min(length, MAX_ARRAY_BYTES))
        )
        index += length if comes else 0
        carried.arrays.append((int(address), content))
    taken = _take_foreign(session, message.fds[0], arg, int(header["takes"])) if "takes" in header else None
    if message.fds and "pages" in header:
        carried.pages_at, pages_bytes, *offset = (int(page) for page in header["pages"])
        carried.pages = map_pages(message.fds[0], pages_bytes, *offset)
    session.memory.carry(carried)
    refusal: dict[str, Any] = {}
    try:
        session.driver.ioctl(int(header["fd"]), int(header["request"]), arg)
    except OSError as error:
        refusal = _make_refusal(error)
    finally:
        if taken is not None:
            session.driver.close(taken)
    fds = _find_handed_out(session, arg, int(header["gives"])) if "gives" in header and not refusal else []
    refusal["written"] = [(address, len(data)) for address, data in carried.written]
    return WireMessage(refusal, bytes(arg) + b"".join(data for _, data in carried.written), fds)


def _find_handed_out(session: ClientSession, arg: bytearray, index: int) -> list[int]:
    """Return the memory that represents a dma-buf created by the ioctl, in the client and in later
    receivers."""
    file = session.process.file(_INT.unpack_from(arg, index)[0])
    memory = file.bo.host_view.fd if isinstance(file, DmaBufFile) else -1
    return [memory] if memory >= 0 else []


def _take_foreign(session: ClientSession, fd: int, arg: bytearray, index: int) -> int | None:
    """Import another process's dma-buf by its memory and store its number in the struct. Return None if it
    is no dma-buf."""
    wanted = os.fstat(fd)
    with session.machine.lock:
        for gpu in session.machine.gpus:
            for bo in gpu.memory.snapshot():
                if bo.host_view.fd >= 0 and os.path.samestat(os.fstat(bo.host_view.fd), wanted):
                    bo.references += 1
                    taken = session.process.add_file(DmaBufFile(bo, gpu))
                    _INT.pack_into(arg, index, taken)
                    return taken
    return None


def _answer_mmap(session: ClientSession, message: WireMessage) -> WireMessage:
    fd, size, offset = (int(message.header[name]) for name in ("fd", "size", "offset"))
    with session.machine.lock:
        shown = map_host(session.machine, session.process, fd, size, offset)
        session.mappings += 1
        session.mapped[session.mappings] = shown.bo
    return WireMessage({"mapping": session.mappings, "offset": shown.offset}, fds=[shown.memory.fd])


def _answer_munmap(session: ClientSession, message: WireMessage) -> None:
    bo = session.mapped.pop(int(message.header["mapping"]), None)
    if bo is not None:
        bo.remove_host_mapping()


def _answer_poll(session: ClientSession, message: WireMessage) -> dict[str, Any]:
    fds = [int(fd) for fd in message.header["fds"]]
    return {"ready": session.driver.poll(fds, float(message.header["timeout_seconds"]))}


def _answer_announce(session: ClientSession, message: WireMessage) -> None:
    session.driver.announce_all([(int(va), int(size), str(name)) for va, size, name in message.header["rows"]])


def _answer_allocated(session: ClientSession, message: WireMessage) -> None:
    va, size, room = (int(message.header[name]) for name in ("va", "size", "room"))
    session.driver.announce_allocation(va, size, room, str(message.header["name"]))


def _answer_launches(session: ClientSession, message: WireMessage) -> None:
    va, rows, size = (int(message.header[name]) for name in ("va", "rows", "row"))
    session.process.launches = LaunchTable(session.process.pid, va, rows, size).find


def _answer_precompile(session: ClientSession, message: WireMessage) -> None:
    rows = message.header["kernels"]
    session.driver.precompile([KernelToCompile(**{**row, "threads": tuple(row["threads"])}) for row in rows])


def _answer_findings(session: ClientSession, message: WireMessage) -> dict[str, Any]:
    """Return one message of findings, from number `since` on; `count` is the total."""
    result, since = session.driver.findings(), int(message.header.get("since", 0))
    part = result[since : since + FINDINGS_A_MESSAGE]
    rows = [{**asdict(item), "severity": item.severity.value} for item in part]
    machine = session.machine
    about = {
        "dmesg": machine.dmesg[-1000:],
        "allocations": machine.allocations,
        "injected": machine.injector.report(),
    }
    return {"findings": rows, "count": len(result), **about}


def _answer_coverage(session: ClientSession, message: WireMessage) -> dict[str, Any]:
    period, marks = session.driver.consulted(int(message.header["since"]))
    return {"period": period, "marks": marks}


def _answer_counters(session: ClientSession, message: WireMessage) -> dict[str, Any]:
    return {"kernels": [asdict(item) for gpu in session.machine.gpus for item in gpu.profile()]}


def _answer_discard(session: ClientSession, message: WireMessage) -> None:
    driver = session.driver
    discard = driver.discard_mapped if message.header.get("mapped") else driver.discard
    discard(*_parse_range(message))


def _parse_range(message: WireMessage) -> tuple[int, int]:
    return int(message.header["va"]), int(message.header["size"])


OPERATIONS: Mapping[str, Callable[[ClientSession, WireMessage], WireMessage | dict[str, Any] | None]] = {
    "open": lambda s, m: {"fd": s.driver.open(str(m.header["path"]), int(m.header["flags"]))},
    "ioctl": _answer_ioctl,
    "mmap": _answer_mmap,
    "munmap": _answer_munmap,
    "close": lambda s, m: s.driver.close(int(m.header["fd"])),
    "poll": _answer_poll,
    "read_file": lambda s, m: WireMessage({}, s.driver.read_file(str(m.header["path"]))),
    "list_dir": lambda s, m: {"names": s.driver.list_dir(str(m.header["path"]))},
    "announce": _answer_announce,
    "allocated": _answer_allocated,
    "freed": lambda s, m: s.driver.announce_allocation(int(m.header["va"]), 0, 0, ""),
    "launches": _answer_launches,
    "precompile": _answer_precompile,
    "findings": _answer_findings,
    "consulted": _answer_coverage,
    "counters": _answer_counters,
    "discard": _answer_discard,
    "initialised": lambda s, m: WireMessage({}, s.driver.initialised(*_parse_range(m))),
    "set_watchpoint": lambda s, m: s.driver.set_watchpoint(*_parse_range(m)),
    "watchpoint_hits": lambda s, m: {
        "hits": [asdict(watchpoint_hit) for watchpoint_hit in s.driver.watchpoint_hits()]
    },
    "executions": lambda s, m: {"executions": [asdict(execution) for execution in s.driver.executions()]},
    "tell_again": lambda s, m: s.driver.tell_again(),
    "tell_unfinished": lambda s, m: s.driver.tell_unfinished(),
    "inject": lambda s, m: s.machine.injector.add(str(m.header["name"])),
}
