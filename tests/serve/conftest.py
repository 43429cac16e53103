"""A server with an embedded model on a free port of the loopback, for the tests of a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import openai
import pytest
from headless_chromium import MISSING, Browser, browser, chromium

from zinc_rt.serve.app import app
from zinc_rt.serve.config import Config, DeviceSettings, ModelSettings
from zinc_rt.serve.listening import bind, http_server, url_of
from zinc_rt.serve.server import InferenceServer

MODEL = "qwen3-q"


@dataclass(frozen=True)
class Serving:
    """A running server and where it listens."""

    server: InferenceServer
    url: str


def config(**changes: object) -> Config:
    model = ModelSettings(MODEL, MODEL, ctx=256, slots=4)
    return Config(**{"models": (model,), "device": DeviceSettings("t_cpu", threads=1), **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    yield from running(config())


@pytest.fixture
def client(serving: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none") as made:
        yield made


def running(settings: Config) -> Iterator[Serving]:
    """The server of a configuration while it runs, HTTP and all."""
    server = InferenceServer(settings)
    server.start()
    bound = bind("127.0.0.1", 0)
    http = http_server(app(server), settings.server)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not http.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield Serving(server, url_of(bound))
    http.should_exit = True
    thread.join()
    server.stop()


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip(MISSING)
    with browser(program) as made:
        yield made
