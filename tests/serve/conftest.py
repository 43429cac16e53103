"""A server with an embedded model, for the tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server
from headless_chromium import MISSING, Browser, find_chromium, open_browser

if TYPE_CHECKING:
    import openai

__all__ = ["MODEL", "RunningServer", "make_config", "run_server", "serving"]


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder for hang reports, instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def serving() -> Iterator[RunningServer]:
    yield from run_server(make_config())


@pytest.fixture
def openai_client(serving: RunningServer) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none") as result:
        yield result


@pytest.fixture(scope="session")
def chrome_browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip(MISSING)
    with open_browser(program) as result:
        yield result
