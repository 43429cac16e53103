"""Serve a simulated AMD GPU over a local socket, until its last client is gone.

    zinc-rt sim --socket PATH [--chip r9700] [--linux 7.0] [--inject NAME] …

Outside clients speak the same protocol (sim.serve.wire): see docs/simulated-device.md.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import OutputError, UsageError, ZincError
from zinc_rt.host.terminal import Table
from zinc_rt.sim.chips import ALIASES, CHIPS
from zinc_rt.sim.inject import INJECTIONS, parse
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import COHERENCE, MachineOptions
from zinc_rt.sim.profiles import LINUX_VERSIONS, PROPOSALS
from zinc_rt.sim.serve import wire
from zinc_rt.sim.serve.operations import ClientSession, answer
from zinc_rt.sim.serve.remote_memory import RemoteMemory
from zinc_rt.sim.serve.socket_path import find_program_folder, lock_socket
from zinc_rt.sim.shader.run import crash
from zinc_rt.sim.shader_engine import LEVELS

GRACE_SECONDS = 0.5  # without a client
FIRST_CLIENT_SECONDS = 30.0
ACCEPT_SECONDS = 0.25
CRASH_STATUS = 70


class Hangups:
    """Watches connections in a thread. Calls a function once when the other end of one is closed, also while the
    request that came by it is in progress."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, name="hangups", daemon=True).start()

    def watch(self, connection: socket.socket, closed: Callable[[], None]) -> None:
        with self._lock:
            self._watched[connection.fileno()] = closed
        self._epoll.register(connection, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, connection: socket.socket) -> None:
        """Stop watching; call it before the connection is closed."""
        with self._lock:
            if self._watched.pop(connection.fileno(), None) is not None:
                self._epoll.unregister(connection)

    def _watch(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                with self._lock:
                    closed = self._watched.get(fd)
                    if closed is not None:
                        closed()


class Server:
    """Clients of one machine, each in a thread, until the last one has disconnected."""

    def __init__(self, machine: SimMachine, listener: socket.socket, *, stay: bool = False) -> None:
        self.machine, self.listener, self.stay = machine, listener, stay
        self._sessions: dict[str, ClientSession] = {}
        self._hangups = Hangups()
        self._lock = threading.Lock()
        self._last_seen = time.monotonic() + FIRST_CLIENT_SECONDS - GRACE_SECONDS
        for gpu in machine.gpus:
            gpu.on_crash = lambda: os._exit(CRASH_STATUS)

    def serve_clients(self) -> None:
        """Serve. Return when no client has been connected for a while."""
        self.listener.settimeout(ACCEPT_SECONDS)
        while self.stay or self._sessions or time.monotonic() - self._last_seen < GRACE_SECONDS:
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                continue
            connection.setblocking(True)
            self._last_seen = time.monotonic()  # its session may start only when its thread is scheduled
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        session, thread = None, threading.get_ident()
        try:
            session = self._greet_client(connection)
            self._hangups.watch(connection, partial(session.interrupt, thread))
            while True:
                message = wire.receive(connection)
                try:
                    wire.send(connection, answer(session, message))
                finally:
                    for fd in message.fds:
                        os.close(fd)
        except (wire.ConnectionClosed, OSError, KeyError, TypeError, ValueError):
            pass  # a client that died, or talks nonsense: it loses its connection
        finally:
            self._hangups.forget(connection)
            connection.close()
            if session is not None:
                session.process.interrupted.discard(thread)
                self._end_session(session)

    def _greet_client(self, connection: socket.socket) -> ClientSession:
        message = wire.receive(connection)
        version = message.header.get("version")
        if version != wire.VERSION:
            text = f"protocol version {version}: this device speaks {wire.VERSION}"
            wire.send(connection, wire.WireMessage({"errno": errno.EPROTONOSUPPORT, "message": text}))
            raise wire.ConnectionClosed(text)
        token = message.header.get("token")
        with self._lock:
            if token is None:
                memory = RemoteMemory()
                token = os.urandom(16).hex()
                process = self.machine.create_process(memory, _read_pid(connection))
                self._sessions[token] = ClientSession(token, self.machine, process, memory)
            session = self._sessions[token]
            session.connections += 1
        model = self.machine.model
        about = {
            "token": token,
            "version": wire.VERSION,
            "device": model.describe_options(),
            "options": model.options.to_json(),
        }
        try:
            wire.send(connection, wire.WireMessage(about))
        except OSError:  # gone before it was greeted
            self._end_session(session)
            raise
        return session

    def _end_session(self, session: ClientSession) -> None:
        with self._lock:
            session.connections -= 1
            if session.connections:
                return
        try:
            session.end()
        finally:
            with self._lock:
                self._sessions.pop(session.token, None)
                self._last_seen = time.monotonic()


def _read_pid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(raw[:4], "little")


EPILOG = """\
Prints the socket's path when clients can connect. --list prints faults, chips and Linux versions.
Protocol and example client: docs/simulated-device.md. Supported Linux interfaces: docs/clients.md

examples:
  zinc-rt sim --list
  zinc-rt sim --chip rx9070xt -- ./a.out                                run your program with that card
  zinc-rt sim --socket /tmp/gpu.sock                                    a Radeon AI PRO R9700 on Linux 7.0
  zinc-rt sim --socket /tmp/gpu.sock --chip rx9070xt --linux 6.16      another card and an older Linux
  zinc-rt sim --socket /tmp/gpu.sock --inject lost-doorbell@3 --stay    drop the third doorbell write

Exit code: 0 the last client disconnected, 2 wrong usage or no socket, 130 interrupted; with --, the program's.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="zinc-rt sim",
        description="Serve a simulated AMD GPU over a local socket until the last client disconnects. With "
        "-- PROGRAM ARGS, run a Linux program that sees the simulated GPU as /dev/kfd and /dev/dri.",
        epilog=EPILOG,
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--socket", type=Path, metavar="PATH", help="socket to create")
    group.add_argument("--list", action="store_true", help="list chips, Linux versions and faults")
    parser.add_argument(
        "--chip",
        default="r9700",
        metavar="CHIP",
        help=f"simulated chips, separated by commas: {', '.join([*CHIPS, *ALIASES])} (default r9700)",
    )
    parser.add_argument(
        "--linux",
        default="7.0",
        metavar="VERSION",
        help=f"simulated Linux version: {', '.join(LINUX_VERSIONS)} (default 7.0); VERSION+PROPOSAL adds a "
        f"change that is not merged yet: {', '.join(PROPOSALS)}",
    )
    parser.add_argument(
        "--inject",
        action="append",
        default=[],
        metavar="NAME",
        help="inject a fault: NAME, NAME:COUNT or NAME@NTH",
    )
    parser.add_argument(
        "--coherence",
        default="bar",
        choices=COHERENCE,
        help="memory model: bar (CPU and GPU views of VRAM are separate copies until flushed), direct (one copy), "
        "caches (like bar, but caches of waves can be stale; --reorder selects the lines; runs on one core) "
        "(default bar)",
    )
    parser.add_argument(
        "--time-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="scale factor for the driver's time-outs; 0.1 shortens them",
    )
    parser.add_argument(
        "--reorder",
        type=int,
        metavar="SEED",
        help="complete concurrent work, and run workgroups and waves, in a random order with this seed",
    )
    parser.add_argument(
        "--sanitizer",
        default="fast",
        choices=LEVELS,
        help="shader checks: off (virtual memory only), fast (bounds, alignment, "
        "initialisation), full (also races "
        "and lint) (default fast)",
    )
    parser.add_argument(
        "--perturb",
        type=int,
        default=0,
        metavar="SEED",
        help="change results of inexact instructions by up to one ULP, at random with this seed",
    )
    parser.add_argument(
        "--reverse-lanes", action="store_true", help="access the highest lane of each memory instruction first"
    )
    parser.add_argument(
        "--profile", action="store_true", help="count instructions and bytes of kernels; record accessed buffers"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="number of host cores that run waves (default all)"
    )
    parser.add_argument("--facts", metavar="F", help="behave like the card measured with `pm4-test --learn F`")
    parser.add_argument(
        "--force-facts", action="store_true", help="accept facts of another chip or of a simulated device"
    )
    parser.add_argument(
        "--flip",
        action="append",
        default=[],
        metavar="ID",
        help="negate an assumption of facts.yaml (zinc-rt assumptions lists them)",
    )
    parser.add_argument("--stay", action="store_true", help="keep running after the last client disconnects")
    return parser


def format_listing() -> str:
    """Return the list of all options' values, as text."""
    chips = [[row.key, row.gfx, row.name] for row in CHIPS.values()]
    versions = [
        [row.version, f"KFD 1.{row.kfd_minor}", "user queues" if row.userq else ""]
        for row in LINUX_VERSIONS.values()
    ]
    faults = [[row.name, row.probe, row.does] for row in INJECTIONS]
    tables = (("chip", chips), ("linux", versions), ("fault", faults))
    return "\n\n".join(str(Table((name, "", ""), rows)) for name, rows in tables)


def main(argv: list[str] | None = None) -> int:
    """Run the process that a client starts; the user command is zinc_rt.cli.sim."""
    try:
        return run(parser().parse_args(argv))
    except ZincError as error:
        print(f"zinc-rt sim: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Serve until the last client has disconnected. Raises UsageError and OutputError."""
    if arguments.list:
        print(format_listing())
        return 0
    if arguments.socket is None:
        raise UsageError("expected --socket PATH, --list, or -- PROGRAM ARGS", next="zinc-rt sim --help")
    if not 0 < arguments.time_scale < float("inf"):
        raise UsageError(f"--time-scale {arguments.time_scale}: expected more than 0")
    try:
        for item in arguments.inject:
            parse(item)
        names = {field.name for field in fields(MachineOptions)}
        chosen = {name: value for name, value in vars(arguments).items() if name in names}
        machine = SimMachine(
            MachineOptions(**chosen), crash_records=lambda index: crash.make_path(arguments.socket, index)
        )
    except ValueError as error:
        raise UsageError(str(error), next="zinc-rt sim --list") from None
    try:
        _serve(machine, arguments.socket, stay=arguments.stay)
    finally:
        machine.close()
        for path in crash.list_paths(arguments.socket):
            path.unlink(missing_ok=True)
        shutil.rmtree(find_program_folder(arguments.socket), ignore_errors=True)
    return 0


def _serve(machine: SimMachine, path: Path, *, stay: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen(64)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            next_ = "choose another path, or remove it if no server is left behind it" if in_use else None
            raise OutputError(f"--socket {path}: {error.strerror or error}", next=next_) from error
        before = signal.signal(signal.SIGTERM, _on_sigterm)
        try:
            print(json.dumps({"ready": str(path)}), flush=True)
            Server(machine, listener, stay=stay).serve_clients()
        finally:
            signal.signal(signal.SIGTERM, before)
            with lock_socket(path):  # so that no client finds a socket without a server
                path.unlink(missing_ok=True)
                listener.close()


def _on_sigterm(number: int, frame: object) -> None:
    """Handle a service manager's SIGTERM: remove the socket too."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
