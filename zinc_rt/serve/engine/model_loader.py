"""Load and unload models within the available memory. The least recently used models are unloaded first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from zinc_rt.host.errors import ZincError
from zinc_rt.serve.config.memory_plan import MemoryBudget, ModelMemory, make_memory_plan
from zinc_rt.serve.config.settings import ModelSettings
from zinc_rt.serve.engine.served_model import ServedModel, open_model
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError

UNLOAD_SECONDS = 30.0  # that what runs on a model may go on before it goes


@dataclass(frozen=True, slots=True)
class LoadingRoom:
    """The memory for a non-resident model. `unloads`: models to unload for it; `missing_bytes`: shortage
    after that; `unusable`: why the model cannot be opened."""

    ctx: int = 0
    bytes: int = 0
    unloads: tuple[str, ...] = ()
    missing_bytes: int = 0
    unusable: str = ""

    @property
    def fits(self) -> bool:
        return not (self.missing_bytes or self.unusable)


class ModelLoader:
    """The model loader. It processes one operation at a time.

    It runs in the event loop and reads files in a worker thread, while the engine thread continues with the
    other models.
    """

    def __init__(self, server: InferenceServer) -> None:
        self._server = server
        self._plans: dict[ModelSettings, tuple[ModelMemory, MemoryBudget]] = {}
        self._one = asyncio.Lock()

    def find_settings(self, id: str) -> ModelSettings:
        """Return the settings of a configured model. Only configured models can be loaded. Raises ServeError
        404."""
        known = {model.id: model for model in self._server.tenancy.config.models}
        if id not in known:
            raise ServeError(
                404,
                f"no model {id[:64]!r}; the configuration has {', '.join(known)}",
                param="model",
                code="model_not_found",
            )
        return known[id]

    async def room(self, settings: ModelSettings) -> LoadingRoom:
        """Return the memory situation for a non-resident model."""
        return await asyncio.to_thread(self._find_available_memory, settings)

    def _find_available_memory(self, settings: ModelSettings) -> LoadingRoom:
        resident = list(self._server.models.values())
        try:
            planned, memory = self._plan(settings)
            sizes = {model.id: self._plan(model.settings)[0].total_bytes for model in resident}
        except ZincError as error:
            return LoadingRoom(unusable=error.message)
        return find_room(planned, memory.total_bytes, resident, sizes)

    def _plan(self, settings: ModelSettings) -> tuple[ModelMemory, MemoryBudget]:
        if settings not in self._plans:
            self._plans[settings] = make_memory_plan(settings, self._server.config.device)
        return self._plans[settings]

    async def load(self, id: str) -> ServedModel:
        """Load a model. Unpinned models are unloaded if memory is insufficient, the least recently used
        first.

        Raises ServeError 404 if the model is not configured, 409 if it cannot be opened or does not fit.
        """
        async with self._one:
            server = self._server
            if (resident := server.models.get(id)) is not None:
                if not resident.lost:
                    return resident
                self._plans.pop(resident.settings, None)  # its file may be another
                await server.call(partial(server.remove, resident))
            settings = self.find_settings(id)
            room = await self.room(settings)
            if room.unusable:
                raise _make_conflict_error(room.unusable, "model_unusable")
            if not room.fits:
                raise _make_conflict_error(
                    (
                        f"{id} needs {room.bytes:,} bytes, {room.missing_bytes:,} more than available after "
                        "unloading all unpinned models"
                    ),
                    "model_does_not_fit",
                )
            for other in room.unloads:
                await self._unload(server.models[other], UNLOAD_SECONDS)
            async with server.tenancy.changing:  # its scheduler begins with the tenants there are when it is added
                try:
                    model = await asyncio.to_thread(open_model, settings, server.tenancy.config, server.wake)
                except ZincError as error:
                    raise _make_conflict_error(error.message, "model_unusable") from error
                await server.call(lambda: server.add(model))
            return model

    async def unload(self, id: str, seconds: float = UNLOAD_SECONDS) -> None:
        """Stop accepting requests for a model, wait up to `seconds` for running requests, and free its
        memory.

        Raises ServeError 404 if it is not resident.
        """
        async with self._one:
            await self._unload(self._server.model(id), seconds)

    async def _unload(self, model: ServedModel, seconds: float) -> None:
        server = self._server
        model.leaving = True
        until = time.monotonic() + seconds
        while model.streams and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for stream in list(model.streams.values()):
            stream.cancel("model_unloaded")
        while model.streams and not model.lost:
            await asyncio.sleep(0.01)  # a step at most
        if server.store is not None:
            await asyncio.to_thread(server.store.settle)  # its ledger goes with it
        await server.call(lambda: server.remove(model))


def find_room(
    planned: ModelMemory, whole: int, resident: Sequence[ServedModel], sizes: Mapping[str, int]
) -> LoadingRoom:
    """Return the models to unload for a model on a device of `whole` bytes. Idle models go first. 0 means
    unknown, and is treated as sufficient."""
    missing = planned.total_bytes + sum(sizes[model.id] for model in resident) - whole if whole else 0
    gone: list[str] = []
    for model in sorted(resident, key=lambda model: (bool(model.streams), model.used_at)):
        if missing <= 0:
            break
        if not model.settings.pinned:
            gone.append(model.id)
            missing -= sizes[model.id]
    return LoadingRoom(planned.ctx, planned.total_bytes, tuple(gone) if missing <= 0 else (), max(0, missing))


def _make_conflict_error(message: str, code: str) -> ServeError:
    return ServeError(409, message, "conflict_error", "model", code)
