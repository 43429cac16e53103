"""HTTP on a socket, from before the models are there until a signal ends it: loading, ready, draining, gone.

The first SIGTERM or Ctrl-C drains: nothing new is taken, what runs goes on for a while. The second ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import uvicorn
from fastapi import FastAPI

from zinc_rt.host.errors import ZincError
from zinc_rt.serve.config.reload import reload
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.http.connections import BoundedConnection, OpenConnections
from zinc_rt.serve.observe.events import watch_clocks

INTERRUPTED = 130
FAILED = 1
BACKLOG = 1024
CLOSE_SECONDS = 5.0  # that clients have to take their last bytes, and the engine's thread to end


class HttpServer(uvicorn.Server):
    """uvicorn's, which leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_http_server(app: FastAPI, settings: ServerSettings) -> HttpServer:
    """Return uvicorn with the limits of the server's settings. uvicorn itself writes no log."""
    limits = OpenConnections(settings)
    return HttpServer(
        uvicorn.Config(
            app,
            http=partial(BoundedConnection, limits=limits),  # type: ignore[arg-type]
            timeout_keep_alive=math.ceil(settings.idle_s),
            ws=_find_web_sockets(limits),
            ws_max_size=settings.max_body_bytes,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(CLOSE_SECONDS),
        )
    )


def _find_web_sockets(limits: OpenConnections) -> Any:
    """Return the protocol of WebSockets; without the package `websockets`, no connection becomes one."""
    if find_spec("websockets") is None:
        return "none"
    from zinc_rt.serve.http.web_sockets import BoundedWebSocket

    return partial(BoundedWebSocket, limits=limits)


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket to listen on. Raises AddressTaken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        raise AddressInUse(
            f"{host}:{port}: cannot listen: {error.strerror or error}",
            next="choose another --port; 0 selects a free one",
        ) from error
    return bound


class AddressInUse(ZincError):
    """Raised if the server cannot listen on the address, for example because another process does."""


def format_url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(
    server: InferenceServer,
    app: FastAPI,
    bound: socket.socket,
    *,
    ready: Callable[[], None],
    report: Callable[[str], None],
) -> int:
    """Serve until a signal, and close everything. Return the exit code: 0 after a drain, 1 if the device was lost
    or a simulated device has reported an error, 130 if a second signal aborted requests.

    `ready` is called once the models are resident. Raises ZincErrors for models and devices that cannot be opened,
    and OutputError if the ledger could not be written.
    """
    code = asyncio.run(_serve(server, make_http_server(app, server.config.server), bound, ready, report))
    if code == INTERRUPTED and not server.stop(CLOSE_SECONDS):
        sys.stdout.flush()
        os._exit(code)  # its thread is in a step, or loads a model: nothing waits for that
    try:
        server.stop()
    finally:
        for sentence in server.findings():
            report(f"FAIL      {sentence}")
    return FAILED if server.findings() else code


async def _serve(
    server: InferenceServer,
    http: HttpServer,
    bound: socket.socket,
    ready: Callable[[], None],
    report: Callable[[str], None],
) -> int:
    loop, signals = asyncio.get_running_loop(), asyncio.Semaphore(0)
    reloads: set[asyncio.Future[None]] = set()  # kept, so that none is lost half way
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.release)
    loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(asyncio.ensure_future(_reload(server, report))))
    stop = asyncio.ensure_future(signals.acquire())
    lost = asyncio.ensure_future(server.wait_for_lost_models())
    opened = asyncio.ensure_future(server.open_in_background())
    answering = asyncio.ensure_future(http.serve(sockets=[bound]))
    watching = asyncio.ensure_future(watch_clocks())
    try:
        await asyncio.wait({opened, stop, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            return INTERRUPTED
        opened.result()
        ready()
        await asyncio.wait({stop, lost, answering}, return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            report(f"lost      {lost.result()}")
            return FAILED
        signal_task = asyncio.ensure_future(signals.acquire())
        drained = asyncio.ensure_future(_drain(server, report))
        await asyncio.wait({drained, signal_task}, return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            http.force_exit = True
            return INTERRUPTED
        return 0
    finally:
        watching.cancel()
        http.should_exit = True
        await answering


async def _reload(server: InferenceServer, report: Callable[[str], None]) -> None:
    """Handle SIGHUP: reload the configuration file, or log why nothing changed."""
    try:
        result = await reload(server)
    except ServeError as error:
        report(f"reload    nothing has changed: {error.message}")
        return
    later = f"; at the next start: {', '.join(result.at_start)}" if result.at_start else ""
    report(f"reload    {', '.join(result.applied) or 'nothing'} changed{later}")


async def _drain(server: InferenceServer, report: Callable[[str], None]) -> None:
    seconds = server.config.server.drain_s
    if running := server.requests:
        count = f"{running} request{'s' * (running > 1)}"
        report(f"draining  {count}, at most {seconds:g} s; a second signal ends at once")
    await server.drain(seconds)
