"""A server with an embedded model, for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from embedded_server import MODEL, Serving, config, running

__all__ = ["MODEL", "Serving", "config", "running", "serving"]


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    yield from running(config())
