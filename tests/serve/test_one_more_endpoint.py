"""An endpoint is one file and its name in the app: docs/extending.md's answers and is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from extending import extend_tree

pytestmark = pytest.mark.rest

PROGRAM = """
import sys

sys.path.insert(0, sys.argv[1])
from embedded_server import make_config
from starlette.testclient import TestClient
from zinc_rt.serve.app import make_app
from zinc_rt.serve.engine.server import InferenceServer

made = make_app(InferenceServer(make_config()))
assert list(made.openapi()["paths"]["/contexts"]) == ["get"]
client = TestClient(made, base_url="http://127.0.0.1:8080")
answer = client.get("/contexts")
assert (answer.status_code, answer.json()) == (200, {}), answer.text  # no model is resident yet
assert client.post("/contexts").status_code == 405
"""


def test_documented_new_endpoint_works(tmp_path_factory: pytest.TempPathFactory) -> None:
    tree = extend_tree("An endpoint", tmp_path_factory.mktemp("endpoint"))
    assert tree.files == ("zinc_rt/serve/api/contexts.py", "zinc_rt/serve/app.py")
    result = tree.interpreter_in("-c", PROGRAM, str(Path(__file__).parent))
    assert result.returncode == 0, result.stderr
