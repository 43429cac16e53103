"""Respond with 501 and a reason at OpenAI endpoints that this server does not implement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter

from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.openai import REFUSALS
from zinc_rt.serve.errors import make_not_offered_error

_CHAT = "POST /v1/chat/completions"
_TEXT_ONLY = f"the models of this server read and write text only; {_CHAT}"
NOT_OFFERED = (  # path, methods, subject, alternative
    ("/v1/audio/{rest:path}", ("GET", "POST"), "audio", _TEXT_ONLY),
    ("/v1/images/{rest:path}", ("GET", "POST"), "making images", _TEXT_ONLY),
)
router = APIRouter(responses=REFUSALS, route_class=BodyRoute)


def _refuse(subject: str, alternative: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise make_not_offered_error(subject, alternative)

    return refuse


for _path, _methods, _subject, _alternative in NOT_OFFERED:
    router.add_api_route(_path, _refuse(_subject, _alternative), methods=[*_methods], include_in_schema=False)
