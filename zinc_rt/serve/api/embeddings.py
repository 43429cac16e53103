"""POST /v1/embeddings: no model that is built in has a pooling, so that none can make them."""

from __future__ import annotations

from typing import NoReturn

from fastapi import APIRouter, Request

from zinc_rt.serve.api.asking import model_of
from zinc_rt.serve.api.openai import REFUSALS, server_of
from zinc_rt.serve.api.schema import EmbeddingsBody
from zinc_rt.serve.errors import not_offered
from zinc_rt.serve.tenants.auth import Inference

router = APIRouter(responses=REFUSALS)


@router.post("/v1/embeddings", response_model=None, include_in_schema=False)
async def embeddings(request: Request, body: EmbeddingsBody, by: Inference) -> NoReturn:
    model = model_of(server_of(request), body.model)
    raise not_offered(f"embeddings of {model.id}", "the model has no pooling, it makes text")
