"""A server with an embedded model, for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from embedded_server import MODEL, Serving, config, running
from headless_chromium import MISSING, Browser, browser, chromium

__all__ = ["MODEL", "Serving", "config", "running", "serving"]


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    yield from running(config())


@pytest.fixture
def client(serving: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none") as made:
        yield made


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip(MISSING)
    with browser(program) as made:
        yield made
