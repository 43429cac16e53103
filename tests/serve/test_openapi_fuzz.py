"""schemathesis on a running server: whatever a body says, an answer as documented, and never a fault of ours."""

from __future__ import annotations

from typing import Any

import schemathesis
from conftest import Serving, config
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance

from zinc_rt.serve.app import app
from zinc_rt.serve.server import InferenceServer

UNCHECKED = [positive_data_acceptance]  # what a model's context or vocabulary has no room for is refused
EXPLAINED = {504: "deadline_exceeded"}  # a body may ask for a timeout of a millisecond
own = schemathesis.openapi.from_dict(app(InferenceServer(config())).openapi()).exclude(tag="admin")


@own.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_our_document_says(case: Any, serving: Serving) -> None:
    validate(case, serving.url)


def validate(case: Any, url: str) -> None:
    """Hold an answer against its document."""
    response = case.call(base_url=url, timeout=30)
    excluded = list(UNCHECKED)
    if EXPLAINED.get(response.status_code) == (response.status_code >= 500 and response.json()["error"]["code"]):
        excluded.append(not_a_server_error)
    case.validate_response(response, excluded_checks=excluded)
