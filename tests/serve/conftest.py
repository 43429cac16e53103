"""A server with an embedded model, for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from embedded_server import MODEL, Serving, config, running

__all__ = ["MODEL", "Serving", "config", "running", "serving"]


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    yield from running(config())


@pytest.fixture
def client(serving: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none") as made:
        yield made
