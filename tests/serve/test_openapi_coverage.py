"""The same as test_openapi_fuzz, also with values at both sides of each limit of each parameter.

A module of its own: schemathesis makes the cases when pytest collects the module, which takes seconds.
"""

from __future__ import annotations

from typing import Any

import pytest
from embedded_server import RunningServer
from hypothesis import settings
from openai_cut import DOCUMENT
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from test_openapi_fuzz import ANYHOW, OUR_DOCUMENT, fuzzed_server, load_schema, validate_answer

__all__ = ["fuzzed_server"]
pytestmark = pytest.mark.slow
PHASES = ["coverage", "fuzzing"]


@load_schema(OUR_DOCUMENT, PHASES).parametrize()
@settings(max_examples=100, **ANYHOW)
def test_every_answer_matches_our_openapi_document(case: Any, fuzzed_server: RunningServer) -> None:
    validate_answer(case, fuzzed_server.url, [positive_data_acceptance])


@load_schema(DOCUMENT, PHASES).parametrize()
@settings(max_examples=100, **ANYHOW)
def test_requests_valid_for_openai_are_accepted(case: Any, fuzzed_server: RunningServer) -> None:
    validate_answer(case, fuzzed_server.url, [negative_data_rejection])
