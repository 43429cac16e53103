"""Several models on one device: they take turns, come and go, and what one says does not depend on the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from asking import read_answers, run_in_server

from zinc_rt import Sampling
from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.memory_plan import ModelMemory
from zinc_rt.serve.config.settings import LedgerSettings, ModelSettings
from zinc_rt.serve.engine.model_loader import LoadingRoom, ModelLoader, find_room
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer, order_by_turn
from zinc_rt.serve.errors import ServeError

DENSE, MIXED = (
    ModelSettings("dense", "qwen3-q", ctx=256, slots=2, pinned=False),
    ModelSettings("mixed", "qwen35moe-q", ctx=256, slots=2, loaded=False),
)
BOTH = (DENSE, MIXED)
SHORT = Sampling(max_tokens=12, seed=1, temperature=0.7, ignore_eos=True)
LONG = Sampling(max_tokens=200, ignore_eos=True)


@asynccontextmanager
async def http_client(server: InferenceServer) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(server))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.rest
def test_second_model_can_be_loaded_and_unloaded(tmp_path: Any) -> None:
    async def main(server: InferenceServer) -> None:
        dense, mixed = (EngineRequest(name, (5, 6, 7), SHORT) for name in ("dense", "mixed"))
        alone = await read_answers(server, dense)
        async with http_client(server) as client:
            listed = (await client.get("/v1/models")).json()["data"]
            assert [(item["id"], item["zinc_rt"]["loaded"]) for item in listed] == [
                ("dense", True),
                ("mixed", False),
            ]
            assert listed[1]["zinc_rt"]["fits"] and listed[1]["zinc_rt"]["bytes"] > 0
            running = asyncio.ensure_future(
                read_answers(server, replace(dense, sampling=replace(LONG, max_tokens=60)))
            )
            assert (await client.post("/v1/models/load", json={"model": "mixed"})).json()["zinc_rt"]["loaded"]
            both = await asyncio.gather(read_answers(server, dense), read_answers(server, mixed))
            assert both[0] == alone and both[1] != alone
            assert len((await running)[0].tokens) == 60
            response = await client.delete("/v1/models/mixed")
            assert response.json() == {"id": "mixed", "object": "model", "deleted": True}
            with pytest.raises(ServeError, match="no model 'mixed'"):
                await read_answers(server, mixed)
            assert (await client.post("/v1/models/load", json={"model": "mixed"})).status_code == 200
            assert await read_answers(server, mixed) == both[1]
            wrong = await client.post("/v1/models/load", json={"model": "../etc/passwd"})
            assert wrong.status_code in (400, 404)
        assert server.store is not None
        result = [model.core.usage()["tokens_generated"] for model in server.models.values()]
        assert result == [12 + 12 + 60, 12]

    run_in_server(main, models=BOTH, ledger=LedgerSettings(path=str(tmp_path / "usage.sqlite")))


def test_running_request_gets_time_to_finish_before_unload() -> None:
    async def main(server: InferenceServer) -> None:
        async with await server.submit(EngineRequest("dense", (5,), LONG)) as stream:
            await anext(stream)
            unloading = asyncio.ensure_future(ModelLoader(server).unload("dense", 0.0))
            with pytest.raises(ServeError, match="unloaded") as caught:
                async for _ in stream:
                    pass
            assert (caught.value.status, caught.value.code) == (503, "model_unloaded")
            await unloading
        assert not server.models

    run_in_server(main, models=BOTH)


@dataclass(eq=False)
class FakeModel:
    """The part of a ServedModel that affects the decision."""

    id: str
    used_at: float = 0.0
    streams: dict[int, object] = field(default_factory=dict)
    settings: Any = None
    virtual_seconds: float = 0.0
    pending: bool = True
    was_busy: bool = False
    lost: str = ""
    interactive: int = 0

    @property
    def core(self) -> Any:
        return SimpleNamespace(scheduler=SimpleNamespace(queues=SimpleNamespace(by_class=[self.interactive])))


def planned_memory(size: int) -> ModelMemory:
    return ModelMemory("new", "t_cpu", 4096, 8, 16, (), 0, {"weights": size}, 8)


def cast_models(*models: FakeModel) -> list[ServedModel]:
    return cast("list[ServedModel]", list(models))


@pytest.mark.parametrize(
    ("size", "total", "capacity"),
    [
        (40, 100, LoadingRoom(4096, 40)),
        (50, 100, LoadingRoom(4096, 50, ("old",))),
        (70, 100, LoadingRoom(4096, 70, ("old", "busy"))),
        (85, 100, LoadingRoom(4096, 85, (), 5)),
        (85, 0, LoadingRoom(4096, 85)),
    ],
)
def test_least_recently_used_unpinned_model_is_evicted(size: int, total: int, capacity: LoadingRoom) -> None:
    free = SimpleNamespace(pinned=False)
    resident = cast_models(
        FakeModel("busy", 1.0, {1: object()}, free),
        FakeModel("pinned", 0.0, {}, SimpleNamespace(pinned=True)),
        FakeModel("old", 2.0, {}, free),
    )
    assert find_room(planned_memory(size), total, resident, {"busy": 20, "pinned": 20, "old": 20}) == capacity


def test_models_take_turns_by_virtual_time_without_credit() -> None:
    one, two = FakeModel("one"), FakeModel("two", pending=False)
    turns: list[str] = []
    for step in range(60):
        two.pending = step >= 30
        nxt = order_by_turn(cast_models(one, two))[0]
        nxt.virtual_seconds += 1.0 if nxt.id == "one" else 0.5
        turns.append(nxt.id)
    assert set(turns[:30]) == {"one"}
    assert 9 <= turns[30:].count("one") <= 11, "two steps of the other for each, from the first on"
    assert turns[30:34].count("two") <= 3
    two.interactive, two.virtual_seconds = 1, 1000.0
    assert order_by_turn(cast_models(one, two))[0].id == "two"
