"""Serve several devices at one address with Ray Serve: one replica per device, each with a complete zinc-rt
server.
    pip install 'ray[serve]' 'zinc-rt[serve]'
    python3 deploy/ray_serve.py --model M.gguf --replicas 2          # http://127.0.0.1:8000/v1/chat/completions

This is an example to copy, not a dependency. A request is routed by tenant (by the key's id, or by x-session-id)
and, among the tenant's replicas, by the beginning of its prompt, so that it reaches the replica that caches this
prefix. A replica at its request limit is skipped, which bounds the load. Quotas and ledgers are per replica.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.requests import Request
from starlette.responses import StreamingResponse

REPLICAS_A_TENANT = 2
PREFIX_CHARACTERS = 256  # of a prompt, that decide where it goes


class AffinityRouter(RequestRouter):
    """Ranks replicas by highest random weight, so that adding or removing a replica moves only its own
    requests.
    """

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        affinity = pending_request.kwargs.get("affinity") if pending_request else None
        if affinity is None:
            return [candidate_replicas]
        tenant, prefix = affinity
        by_tenant = sorted(candidate_replicas, key=lambda replica: weight(tenant, replica))
        own, others = by_tenant[:REPLICAS_A_TENANT], by_tenant[REPLICAS_A_TENANT:]
        own.sort(key=lambda item: weight(tenant + prefix, item))
        return [[item] for item in own] + ([others] if others else [])


def weight(word: str, replica: RunningReplica) -> bytes:
    return hashlib.sha256(f"{word} {replica.replica_id.unique_id}".encode()).digest()


@serve.deployment(request_router_config=RequestRouterConfig(request_router_class=AffinityRouter))
class Replica:
    """One device, its models, and zinc_rt's ASGI application."""

    def __init__(self, model: str, tier: str, ctx: int | None) -> None:
        from zinc_rt.serve.app import make_app
        from zinc_rt.serve.config.settings import Config, DeviceSettings
        from zinc_rt.serve.engine.server import InferenceServer

        config = Config.for_model(model, model={"ctx": ctx}, device=DeviceSettings(tier=tier))
        self.server = InferenceServer(config)
        self.server.start()
        self.app = make_app(self.server)

    async def answer(self, scope: dict[str, Any], body: bytes, affinity: tuple[str, str]) -> AsyncIterator[Any]:
        """Return the application's ASGI events. A consumer that stops reading counts as a disconnected client."""
        events: asyncio.Queue[Any] = asyncio.Queue(64)
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        inbox.put_nowait({"type": "http.request", "body": body})
        running = asyncio.ensure_future(self.app({**scope, "app": self.app}, inbox.get, events.put))
        try:
            more = True
            while more:
                event = await events.get()
                more = event["type"] == "http.response.start" or event.get("more_body", False)
                yield event
        finally:
            inbox.put_nowait({"type": "http.disconnect"})
            await running

    async def check_health(self) -> None:
        if lost := [model.lost for model in self.server.models.values() if model.lost]:
            raise RuntimeError(lost[0])  # Ray starts another

    async def __del__(self) -> None:
        await self.server.drain(30)
        self.server.stop()


@serve.deployment
class Front:
    """The HTTP front end: reads a body, determines its tenant and prompt prefix, and forwards the replica's
    events.
    """

    def __init__(self, replicas: serve.handle.DeploymentHandle) -> None:
        self.replicas = replicas.options(stream=True, method_name="answer")

    async def __call__(self, request: Request) -> StreamingResponse:
        body = await request.body()
        names = (
            "type",
            "method",
            "path",
            "raw_path",
            "query_string",
            "headers",
            "http_version",
            "scheme",
            "client",
        )
        scope = {name: request.scope[name] for name in names if name in request.scope}
        scope.update(server=None, root_path="", asgi={"version": "3.0"})
        affinity = tenant_of(request), prefix_of(body)
        events = self.replicas.remote(scope, body, affinity=affinity)
        start = await anext(aiter(events))
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return StreamingResponse((event["body"] async for event in events), start["status"], headers)


def tenant_of(request: Request) -> str:
    """Return the id of a key `zrt_ID_SECRET`, or a session's. No secret is used in a weight."""
    key = request.headers.get("authorization", "").partition("zrt_")[2].partition("_")[0]
    return key or request.headers.get("x-session-id", "")


def prefix_of(body: bytes) -> str:
    try:
        document = json.loads(body)
        return json.dumps(document.get("messages") or document.get("prompt") or "")[:PREFIX_CHARACTERS]
    except (ValueError, AttributeError):
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-q")
    parser.add_argument("--tier", default="auto")
    parser.add_argument("--ctx", type=int)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--replicas", type=int, default=1, help="one a device")
    parser.add_argument("--slots", type=int, default=8, help="maximum number of concurrent requests per replica")
    parser.add_argument("--gpus", type=float, default=0, help="of Ray's, a replica")
    options = parser.parse_args()
    replicas = Replica.options(
        num_replicas=options.replicas,
        max_ongoing_requests=2 * options.slots,
        ray_actor_options={"num_gpus": options.gpus},
    ).bind(options.model, options.tier, options.ctx)
    front = Front.options(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0}).bind(replicas)
    serve.start(http_options={"host": "127.0.0.1", "port": options.port})
    serve.run(front, blocking=True)


if __name__ == "__main__":
    main()
