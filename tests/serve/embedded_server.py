"""A server with an embedded model on a free port of the loopback, HTTP and all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import Config, DeviceSettings, ModelSettings
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.http.listening import HttpServer, bind, format_url, make_http_server

MODEL = "qwen3-q"


@dataclass(frozen=True)
class RunningServer:
    """A running server and where it listens."""

    server: InferenceServer
    url: str
    http: HttpServer

    @property
    def handled(self) -> int:
        """Return the number of open connections and of requests in a handler."""
        state = self.http.server_state
        return len(state.connections) + len(state.tasks)


def make_config(**changes: object) -> Config:
    model = ModelSettings(MODEL, MODEL, ctx=256, slots=4)
    return Config(**{"models": (model,), "device": DeviceSettings("t_cpu", threads=1), **changes})  # type: ignore[arg-type]


def run_server(settings: Config) -> Iterator[RunningServer]:
    """The server of a configuration while it runs."""
    server = InferenceServer(settings)
    server.start()
    http = make_http_server(make_app(server), settings.server)
    with bind("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=http.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not http.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield RunningServer(server, format_url(bound), http)
        http.should_exit = True
        thread.join()
    server.stop()
