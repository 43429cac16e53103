"""schemathesis on a running server: whatever a body says, an answer as documented, and never a fault of ours.

By our own document, where a body may still name what a model has no room for; and by OpenAI's, cut to what is
served here, where everything that is valid is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from embedded_server import MODEL, RunningServer, make_config, run_server
from hypothesis import HealthCheck, settings
from openai_cut import DOCUMENT
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import ModelSettings, TenantSettings
from zinc_rt.serve.engine.server import InferenceServer

MODELS = (ModelSettings(MODEL, MODEL, ctx=256, slots=4),)
SMALL = make_config(models=MODELS, tenants=(TenantSettings(id="me", max_tokens=16),))
pytestmark = pytest.mark.rest
EXPLAINED = {"deadline_exceeded"}  # a body may ask for a timeout of a millisecond
OURS = r"^/(v1/(chat/|models)|v1/completions|tokenize|detokenize|apply-template|slots|props|health|ready)"
OUR_DOCUMENT = make_app(InferenceServer(SMALL)).openapi()
ANYHOW: Any = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


def load_schema(document: dict[str, Any], phases: list[str]) -> Any:
    """Load a schema with schemathesis. `coverage`: test each limit of each parameter from both sides."""
    include = schemathesis.openapi.from_dict(document).include(path_regex=OURS)
    include.config.phases.update(phases=phases)
    return include


@pytest.fixture(scope="module")
def fuzzed_server() -> Iterator[RunningServer]:
    yield from run_server(SMALL)


@load_schema(OUR_DOCUMENT, ["fuzzing"]).parametrize()
@settings(max_examples=12, **ANYHOW)
def test_every_answer_matches_our_openapi_document(case: Any, fuzzed_server: RunningServer) -> None:
    validate_answer(case, fuzzed_server.url, [positive_data_acceptance])


@load_schema(DOCUMENT, ["fuzzing"]).parametrize()
@settings(max_examples=12, **ANYHOW)
def test_requests_valid_for_openai_are_accepted(case: Any, fuzzed_server: RunningServer) -> None:
    validate_answer(case, fuzzed_server.url, [negative_data_rejection])  # more is taken here


def validate_answer(case: Any, url: str, unchecked: list[Any]) -> None:
    """Hold an answer against its document."""
    response = case.call(base_url=url, timeout=30)
    if response.status_code >= 500 and response.json()["error"]["code"] in EXPLAINED:
        unchecked.append(not_a_server_error)
    case.validate_response(response, excluded_checks=unchecked)
