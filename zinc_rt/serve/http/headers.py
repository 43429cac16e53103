"""Response headers: whether the device is simulated, and the tenant's remaining rates."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zinc_rt.serve.api.schema import STRICT
from zinc_rt.serve.engine.server import InferenceServer


class ReplyHeaders:
    """Middleware that adds response headers. x-zinc-rt-device marks results of a simulated device, so that
    they are not mistaken for hardware results."""

    def __init__(self, app: ASGIApp, server: InferenceServer) -> None:
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        STRICT.set(self.server.config.server.strict_parameters)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in self._make_headers(scope).items()]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _make_headers(self, scope: Scope) -> dict[str, str]:
        models = self.server.models.values()
        simulated = any(model.core.engine.backend.device.simulated for model in models)
        headers = {"x-zinc-rt-device": "simulated"} if simulated else {}
        caller = scope.get("state", {}).get("caller")
        return headers if caller is None else headers | self.server.tenancy.headers(caller.tenant, models)
