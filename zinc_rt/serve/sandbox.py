"""Call functions in processes that are killed at a CPU limit, so that no client's data can occupy the server.

    sandbox = Sandbox(prepare=partial(load_vocabulary, tokenizer))
    result = await sandbox.call("alice", 1.0, compile_grammar, text)  # at most 1 s of CPU time

A helper process imports what the calls need and runs `prepare` once. It forks for each call, so a call starts
within milliseconds and can be killed alone. Code in C or Rust that holds the GIL, or that nothing can interrupt,
delays neither the event loop nor other calls. The calls of one tenant wait for each other: see `TenantTurns`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from zinc_rt.sched.bucket import Bucket

MEMORY_BYTES = 1 << 30  # that a call may allocate
WALL_FACTOR = 20  # of its CPU seconds: a call that waits for the processor longer than this is killed
NICENESS = 10  # the engine and the event loop come first
TENANT_MS_PER_SECOND, TENANT_BURST_MS = 250, 4000  # CPU time of one tenant's calls
_CHUNK_BYTES = 1 << 20
_BOOTSTRAP = "import sys; from zinc_rt.serve.sandbox import run_helper; run_helper(int(sys.argv[1]))"

P = ParamSpec("P")
T = TypeVar("T")


class CallKilled(Exception):
    """A call exceeded its CPU or memory limit, or its process crashed."""


class TenantTurns:
    """Decides which waiting call runs next. At most `running` run at once, one fewer of one tenant (but at least
    one).

    The tenant that has used the least CPU time recently comes first. A tenant that used more than its share, of
    TENANT_MS_PER_SECOND and TENANT_BURST_MS, waits even if nobody else does.
    """

    def __init__(self, running: int = 0) -> None:
        self.running = running or max(2, os.cpu_count() or 1)
        self._active = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._buckets: dict[str, Bucket] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def take(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a turn, and give it back at the end of the block."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(future)
        self._start_next()
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._remove_waiter(tenant, future)
                raise
            self._end(tenant)
            raise
        try:
            yield
        finally:
            self._end(tenant)

    def charge(self, tenant: str, cpu_seconds: float) -> None:
        """Charge a tenant for a call."""
        now_ns = time.monotonic_ns()
        self._find_bucket(tenant, now_ns).charge(math.ceil(1000 * cpu_seconds), now_ns)
        for other, bucket in list(self._buckets.items()):
            if bucket.level(now_ns) >= TENANT_BURST_MS:  # as if it had never come
                del self._buckets[other]

    def _find_bucket(self, tenant: str, now_ns: int) -> Bucket:
        if tenant not in self._buckets:
            self._buckets[tenant] = Bucket(TENANT_MS_PER_SECOND, TENANT_BURST_MS, now_ns)
        return self._buckets[tenant]

    def _end(self, tenant: str) -> None:
        self._active -= Counter((tenant,))
        self._start_next()

    def _remove_waiter(self, tenant: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting[tenant]
        waiting.remove(future)
        if not waiting:
            del self._waiting[tenant]

    def _start_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ns = time.monotonic_ns()
        most = max(1, self.running - 1)
        while self._waiting and self._active.total() < self.running:
            free = [tenant for tenant in self._waiting if self._active[tenant] < most]
            if not free:
                return
            buckets = self._buckets
            levels = {name: buckets[name].level(now_ns) if name in buckets else math.inf for name in free}
            tenant = max(free, key=lambda name: levels[name])
            if levels[tenant] <= 0:
                due_ns = min(self._buckets[tenant].allows_from_ns(now_ns) for tenant in free)
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later((due_ns - now_ns) / 1e9, self._start_next)
                return
            future = self._waiting[tenant][0]
            self._remove_waiter(tenant, future)
            if not future.done():
                self._active[tenant] += 1
                future.set_result(None)


class Sandbox:
    """A helper process that runs calls. `prepare`: what it does once, before the first call; it must be picklable,
    like the functions that are called, their arguments and results."""

    def __init__(self, prepare: Callable[[], object] | None = None, turns: TenantTurns | None = None) -> None:
        self.turns = TenantTurns() if turns is None else turns
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = threading.Lock()
        self._closed = False

    @property
    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the helper process, unless it is running. It prepares itself while the caller goes on."""
        with self._starting:
            if not self._alive and not self._closed:
                self._end_process()
                self._start_process()

    def _start_process(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
            self._control = ours
            message = pickle.dumps(self._prepare)
            ours.sendall(len(message).to_bytes(8, "little") + message)
        finally:
            theirs.close()

    def close(self) -> None:
        """End the helper process for good. Calls that run in it end at their limits."""
        with self._starting:
            self._closed = True
            self._end_process()

    def _end_process(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def call(
        self, tenant: str, cpu_seconds: float, function: Callable[P, T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Return what the function returns in a process of its own, or raise what it raises.

        `tenant` is charged for the CPU time. Raises CallKilled past `cpu_seconds` or MEMORY_BYTES.
        """
        payload = pickle.dumps((cpu_seconds, function, args, options))
        async with self.turns.take(tenant):
            reply = await self._exchange(payload)
            if not reply:
                self.turns.charge(tenant, cpu_seconds)
                raise CallKilled(f"took more than {cpu_seconds:g} s of CPU time or {MEMORY_BYTES >> 20} MiB")
        used_seconds, result, error = pickle.loads(reply)
        self.turns.charge(tenant, used_seconds)
        if error is not None:
            raise error
        return result

    async def _exchange(self, payload: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        if not self._alive:
            await asyncio.to_thread(self.start)
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            try:
                with theirs:
                    if self._control is None:
                        raise OSError("closed")
                    socket.send_fds(self._control, [b"c"], [theirs.fileno()])
                await loop.sock_sendall(ours, payload)
                ours.shutdown(socket.SHUT_WR)
                reply = bytearray()
                while part := await loop.sock_recv(ours, _CHUNK_BYTES):
                    reply += part
            except OSError:  # the call was killed while it read, or the helper has ended
                return b""
            return bytes(reply)


# --- in the helper process


def run_helper(control_fd: int) -> None:
    """Fork a process for each call that arrives, until the server closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended calls leave no zombies
    os.nice(NICENESS)
    with socket.socket(fileno=control_fd) as control:
        size = int.from_bytes(_receive(control, 8), "little")
        prepare = pickle.loads(_receive(control, size))
        if prepare is not None:
            prepare()
        while True:
            message, received, _, _ = socket.recv_fds(control, 1, 1)
            if not message:
                return
            if os.fork() == 0:
                control.close()
                with socket.socket(fileno=received[0]) as connection:
                    _run_call(connection)
                os._exit(0)
            os.close(received[0])


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise SystemExit(0)  # the server has gone
        data += part
    return data


def _run_call(connection: socket.socket) -> None:
    payload = bytearray()
    while part := connection.recv(_CHUNK_BYTES):
        payload += part
    start = time.process_time()
    cpu_seconds, function, args, options = pickle.loads(payload)
    _limit_process(cpu_seconds)
    result: Any = None
    error: Exception | None = None
    try:
        result = function(*args, **options)
    except Exception as raised:
        error = raised
    used_seconds = time.process_time() - start
    try:
        reply = pickle.dumps((used_seconds, result, error))
    except Exception as unpicklable:
        reply = pickle.dumps((used_seconds, None, RuntimeError(f"{error or unpicklable}")))
    with contextlib.suppress(OSError):  # nobody waits any more
        connection.sendall(reply)


def _limit_process(cpu_seconds: float) -> None:
    """Let the kernel kill this process, even inside a library, past its limits."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, WALL_FACTOR * cpu_seconds)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MEMORY_BYTES, used_bytes + MEMORY_BYTES))
