"""Model endpoints: OpenAI's list extended with loadable models; load and unload."""

from __future__ import annotations

from fastapi import APIRouter, Request

from zinc_rt.engine.engine import Engine
from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.openai import REFUSALS, find_server
from zinc_rt.serve.api.replies import ModelDeleted, ModelList, ModelReply
from zinc_rt.serve.api.schema import LoadBody
from zinc_rt.serve.config.settings import ModelSettings
from zinc_rt.serve.engine.model_loader import LoadingRoom, ModelLoader
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.tenants.auth import Admin, Inference

router = APIRouter(responses=REFUSALS, route_class=BodyRoute)


def find_loader(request: Request) -> ModelLoader:
    loader: ModelLoader = request.app.state.loader
    return loader


@router.get("/v1/models")
async def list_models(request: Request, by: Inference) -> ModelList:
    """List the resident models, then the loadable models."""
    server = find_server(request)
    absent = [model for model in server.tenancy.config.models if model.id not in server.models]
    return {
        "object": "list",
        "data": [
            *(_describe_resident(server, model) for model in server.models.values()),
            *[_describe_absent(server, item, await find_loader(request).room(item)) for item in absent],
        ],
    }


@router.get("/v1/models/{id:path}")
async def get_model(request: Request, id: str, by: Inference) -> ModelReply:
    """Return one model, resident or loadable."""
    server = find_server(request)
    if id in server.models:
        return _describe_resident(server, server.models[id])
    settings = find_loader(request).find_settings(id)
    return _describe_absent(server, settings, await find_loader(request).room(settings))


@router.post("/v1/models/load")
async def load_model(request: Request, body: LoadBody, by: Admin) -> ModelReply:
    """Load a configured model. Models that are not pinned are unloaded if memory is insufficient."""
    return _describe_resident(find_server(request), await find_loader(request).load(body.model))


@router.delete("/v1/models/{id:path}")
async def unload_model(request: Request, id: str, by: Admin) -> ModelDeleted:
    """Wait until the model's requests finish, then unload it. It remains in the configuration."""
    await find_loader(request).unload(id)
    return {"id": id, "object": "model", "deleted": True}


def _describe_resident(server: InferenceServer, model: ServedModel) -> ModelReply:
    engine = model.core.engine
    return {
        "id": model.id,
        "object": "model",
        "created": int(server.started_at),
        "owned_by": "zinc_rt",
        "max_model_len": model.ctx,
        "zinc_rt": {
            "loaded": True,
            "ctx": model.ctx,
            "slots": engine.limits.slots,
            "tier": engine.backend.spec.tier,
            "ordering": engine.backend.ordering,
            "prefill_ordering": engine.variants.prefill_ordering or None,
            "deterministic": model.deterministic,
            "simulated": engine.backend.device.simulated,
            "random_weights": model.random_weights,
            "architecture": engine.model.gguf.architecture,
            "embedding": _describe_embedding(engine),
            "memory": _count_memory(engine),
        },
    }


def _describe_embedding(engine: Engine) -> dict[str, int | str] | None:
    """Return the elements and the pooling of an embedding model's embeddings, for a reranker those of its scores;
    None for a model that generates text."""
    model = engine.model
    size = model.width if model.rank_head is None else model.rank_head.output.shape[0]
    return {"dimensions": size, "pooling": model.pooling} if model.pooling else None


def _count_memory(engine: Engine) -> dict[str, int]:
    """Return the bytes of a resident model's buffers. `host_weights_bytes` of its weights are in host memory, on a
    device with separate memory.
    """
    used, residency = engine.variants.resident.memory(), engine.variants.residency
    return {
        "weights_bytes": used.weights,
        "host_weights_bytes": 0 if residency is None else residency.host_bytes,
        "kv_bytes": used.kv,
        "state_bytes": used.state,
        "activations_bytes": used.activations,
        "steps_bytes": used.steps,
        "total_bytes": used.total,
    }


def _describe_absent(server: InferenceServer, settings: ModelSettings, room: LoadingRoom) -> ModelReply:
    return {
        "id": settings.id,
        "object": "model",
        "created": int(server.started_at),
        "owned_by": "zinc_rt",
        "max_model_len": room.ctx,
        "zinc_rt": {
            "loaded": False,
            "slots": settings.slots,
            "bytes": room.bytes,
            "fits": room.fits,
            "unloads": list(room.unloads),
            "missing_bytes": room.missing_bytes,
            "unusable": room.unusable or None,
        },
    }
