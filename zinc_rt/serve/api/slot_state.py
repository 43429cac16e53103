"""GET /slots and /props in llama.cpp's format: the state of the slots, the server's capabilities. Prompts and
generated text are never included."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from typing_extensions import TypedDict

from zinc_rt.sched.request import RUNNING
from zinc_rt.sched.request import Request as Running
from zinc_rt.sched.sampling import Sampling
from zinc_rt.serve.api.asking import find_model
from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.openai import REFUSALS, find_server
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.errors import make_unavailable_error
from zinc_rt.serve.tenants.auth import Inference
from zinc_rt.serve.tenants.keys import Caller

router = APIRouter(responses=REFUSALS, route_class=BodyRoute)


class SlotReply(TypedDict):
    """A slot. `id_task`: the request number, -1 if the slot is free. `zinc_rt`: its tenant and progress."""

    id: int
    id_task: int
    model: str
    n_ctx: int
    speculative: bool
    is_processing: bool
    params: dict[str, Any]
    next_token: dict[str, Any]
    zinc_rt: dict[str, Any]


class PropsReply(TypedDict):
    """The properties of a model. `default_generation_settings`: the settings of a request that sets none."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    chat_template: str
    modalities: dict[str, bool]
    bos_token: str
    eos_token: str
    is_sleeping: bool
    zinc_rt: dict[str, Any]


@router.get("/slots")
async def list_slots(
    request: Request,
    by: Inference,
    model: Annotated[str | None, Query(max_length=256)] = None,
    fail_on_no_slot: Annotated[str | None, Query(max_length=16)] = None,
) -> list[SlotReply]:
    """List all slots for an admin key, or the slots of the key's tenant. `fail_on_no_slot`: return 503 if no slot
    is free.
    """
    of = find_model(find_server(request), model)
    scheduler = of.core.scheduler
    if fail_on_no_slot and not scheduler.slots.free:
        raise make_unavailable_error("no slot is free", "no_slot")
    running = list(enumerate(scheduler.slots.requests))
    return [
        _describe_slot(of, index, running_request)
        for index, running_request in running
        if _can_see(by, of, running_request)
    ]


@router.get("/props")
async def get_props(
    request: Request, by: Inference, model: Annotated[str | None, Query(max_length=256)] = None
) -> PropsReply:
    """Return the properties of a model: context, slots, chat template, default sampling."""
    of = find_model(find_server(request), model)
    core, engine = of.core, of.core.engine
    template = engine.model.gguf.metadata.get("tokenizer.chat_template")
    special = ("", "")
    if core.tokenizer is not None:
        ids = core.tokenizer.bos_id, core.tokenizer.eos_id
        special = tuple("" if id is None else core.tokenizer.token_text(id) for id in ids)  # type: ignore[assignment]
    return {
        "default_generation_settings": {"n_ctx": of.ctx, "params": _format_params(Sampling(temperature=1.0))},
        "total_slots": engine.limits.slots,
        "model_alias": of.id,
        "chat_template": template if isinstance(template, str) else "",
        "modalities": {"vision": False, "audio": False},
        "bos_token": special[0],
        "eos_token": special[1],
        "is_sleeping": False,
        "zinc_rt": {
            "tier": engine.backend.spec.tier,
            "ordering": engine.backend.ordering,
            "prefill_ordering": engine.variants.prefill_ordering or None,
            "deterministic": of.deterministic,
            "simulated": engine.backend.device.simulated,
            "system_fingerprint": of.fingerprint,
            "format": of.format.name,
        },
    }


def _can_see(by: Caller, model: ServedModel, request: Running | None) -> bool:
    if by.admin:
        return True
    return request is not None and model.core.tenants[request.tenant].name == by.tenant


def _describe_slot(model: ServedModel, index: int, request: Running | None) -> SlotReply:
    reply: SlotReply = {
        "id": index,
        "id_task": -1,
        "model": model.id,
        "n_ctx": model.ctx,
        "speculative": False,
        "is_processing": False,
        "params": {},
        "next_token": {},
        "zinc_rt": {},
    }
    if request is None:
        return reply
    reply["id_task"], reply["is_processing"] = request.number, request.state in RUNNING and not request.held
    reply["params"] = _format_params(request.sampling)
    reply["next_token"] = {"n_decoded": request.generated, "n_remain": request.limit - request.generated}
    reply["zinc_rt"] = {
        "tenant": model.core.tenants[request.tenant].name,
        "priority": request.priority.name.lower(),
        "state": request.state.value,
        "held": request.held,
        "choice": request.choice,
        "prompt_tokens": request.prompt,
        "cached_tokens": request.cached,
        "computed_tokens": request.computed,
    }
    return reply


def _format_params(sampling: Sampling) -> dict[str, Any]:
    """Return the sampling parameters under llama.cpp's names. Stop strings are user text and are omitted."""
    return {
        "n_predict": sampling.max_tokens,
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "ignore_eos": sampling.ignore_eos,
        "n_probs": 0 if sampling.logprobs is None else sampling.logprobs,
    }
