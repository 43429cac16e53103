"""The inference server below HTTP: a thread that drives the device, and streams that deliver tokens to the
event loop.

    server = InferenceServer(config)
    server.start()                                    # returns when the models are resident
    async with await server.submit(Ask(...)) as stream:
        async for delivered in stream: ...
    server.stop()

Only the engine thread accesses schedulers and devices. Requests and cancellations reach it through the
scheduler's mailbox, functions through `call`. Tokens leave it with one call_soon_threadsafe per step.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from zinc_rt.engine.engine_core import ContextExceeded
from zinc_rt.host.errors import OutputError, UsageError, ZincError
from zinc_rt.sched.tenant import Priority
from zinc_rt.sched.usage.ledger_store import LedgerStore
from zinc_rt.serve.config.settings import Config
from zinc_rt.serve.engine.answer_stream import AnswerStream
from zinc_rt.serve.engine.endings import make_failure
from zinc_rt.serve.engine.model_file import LOOK_SECONDS
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.served_model import Delivery, ServedModel, open_model
from zinc_rt.serve.errors import ServeError, make_unavailable_error
from zinc_rt.serve.observe.events import report_ledger
from zinc_rt.serve.sandbox import Sandbox
from zinc_rt.serve.tenants.tenancy import Tenancy


def order_by_turn(models: Collection[ServedModel]) -> list[ServedModel]:
    """Return the models with pending work in execution order: first those with a waiting interactive request,
    then by least device time.

    A model that was idle starts with the smallest device time of the others.
    """
    busy = [model for model in models if not model.lost and model.pending]
    going = [model.virtual_seconds for model in busy if model.was_busy]
    for model in models:
        if model in busy and not model.was_busy and going:
            model.virtual_seconds = max(model.virtual_seconds, min(going))
        model.was_busy = model in busy
    return sorted(busy, key=lambda model: (not _has_waiting_interactive(model), model.virtual_seconds))


def _has_waiting_interactive(model: ServedModel) -> bool:
    return model.core.scheduler.queues.by_class[Priority.INTERACTIVE] > 0


T = TypeVar("T")


class InferenceServer:
    """One process with one device and its models. `models`: the resident models by id; the dict is replaced,
    never modified."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.tenancy = Tenancy(config)
        self.models: dict[str, ServedModel] = {}
        self.sandbox = Sandbox()  # for requests' bodies
        self.draining = False
        self.started_at = time.time()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._ended = False  # the engine's thread runs nothing any more
        self._wake = threading.Event()
        self._stopping = False
        self._opened: Future[None] = Future()
        self._lost: Future[str] = Future()  # why the device is gone
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._store: LedgerStore | None = None
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._findings: list[str] = []  # of the models that were closed, a sentence each
        self._unwritten = ""  # why the ledger's last seconds are not in its file

    # --- from outside

    @property
    def store(self) -> LedgerStore | None:
        """Return the ledger store, or None if usage is not persisted."""
        return self._store

    def start(self) -> None:
        """Open the models and start to serve. Raises ZincErrors if a model cannot be opened."""
        self._thread.start()
        self._opened.result()

    async def open_in_background(self) -> None:
        """Start the server without blocking the event loop. See `start`."""
        self._thread.start()
        await asyncio.shield(asyncio.wrap_future(self._opened))

    async def wait_for_lost_models(self) -> str:
        """Wait until the device is lost permanently. Return the reason."""
        return await asyncio.shield(asyncio.wrap_future(self._lost))

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Stop at once: cancel unfinished requests, write the ledger, release the device. Return False if the
        thread has not ended after `timeout_seconds`.

        Raises OutputError if the ledger cannot be written.
        """
        self._stopping = True
        self.sandbox.close()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        ended = not self._thread.is_alive()
        if ended and self._unwritten:
            raise OutputError(
                self._unwritten,
                next=("free disk space, or choose another path: the usage of the last seconds is not in the file"),
            )
        return ended

    def list_faults(self) -> list[str]:
        """Return the current faults that do not stop the service, one sentence each. May block on a simulated
        device."""
        reasons = [model.lost for model in self.models.values()]
        reasons += [model.findings() for model in self.models.values() if not model.lost]
        reasons += [model.drafter_failure() for model in self.models.values()]
        if self._store is not None:
            reasons.append(self._store.health().degraded)
        return [sentence for sentence in reasons if sentence]

    def findings(self) -> list[str]:
        """Return the findings of simulated devices of closed models, one sentence for each model with findings.
        Complete after `stop`.
        """
        return list(self._findings)

    @property
    def requests(self) -> int:
        """Return the number of unfinished requests."""
        return sum(len(model.streams) for model in self.models.values())

    async def drain(self, seconds: float) -> bool:
        """Stop accepting requests and wait up to `seconds` for running requests. Return whether all finished.
        The others fail."""
        self.draining = True
        until = time.monotonic() + seconds
        while self.requests and time.monotonic() < until:
            await asyncio.sleep(0.02)
        left = [stream for model in self.models.values() for stream in list(model.streams.values())]
        for stream in left:
            stream.cancel("draining")
        while self.requests and not self._lost.done():
            await asyncio.sleep(0.01)  # a step at most
        return not left

    async def submit(self, ask: EngineRequest) -> AnswerStream:
        """Start a request. Raises ServeError if it is refused."""
        if not self._opened.done():
            raise make_unavailable_error("the models are loading", "loading", 5)
        if self.draining:
            raise make_failure("draining")
        if self._store is not None and (reason := self._store.refuses()):
            raise make_unavailable_error(reason, "ledger", 10)
        model = self.model(ask.model)
        if model.leaving:
            raise make_failure("model_unloaded")
        try:
            stream = model.ask(self.tenancy.allowed(ask, model))
        except ContextExceeded as error:
            raise ServeError(400, error.message, code="context_length_exceeded") from error
        except UsageError as error:
            raise ServeError(400, str(error)) from error
        if model.lost:  # until now: if later, the stream is told
            model.streams.pop(stream.number, None)
            raise make_unavailable_error(model.lost, model.lost_code, 10)
        self._wake.set()
        return stream

    def model(self, name: str) -> ServedModel:
        """Return a resident model by id. Raises ServeError 404."""
        model = self.models.get(name)
        if model is None:
            text = ", ".join(self.models) or "none"
            raise ServeError(404, f"no model {name!r}; resident: {text}", param="model", code="model_not_found")
        return model

    def call(self, function: Callable[[], T]) -> Awaitable[T]:
        """Run a function in the engine thread, between two steps."""
        future: Future[T] = Future()
        self._calls.append((future, function))
        self._wake.set()
        if self._ended:
            self._run_calls()
        return asyncio.wrap_future(future)

    def _run_calls(self) -> None:
        while self._calls:
            future, function = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if self._ended:
                    raise make_failure("draining")
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    def wake(self) -> None:
        """Notify the engine thread of a new message in a scheduler's mailbox."""
        self._wake.set()

    # --- the engine's thread

    def _run(self) -> None:
        try:
            self._open()
        except BaseException as error:
            self._close()
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        try:
            while not self._stopping:
                self._wake.clear()
                self._run_calls()
                self._check_files()
                if not self._step():
                    self._wake.wait(self._compute_seconds_until_due())
        except Exception as error:  # nobody is to wait for a thread that has ended
            self._lose_model("the server", error)
        finally:
            self._close()

    def _open(self) -> None:
        config = self.config
        ledger = config.ledger
        if ledger.path is not None:  # first: another process may have the file
            self._store = LedgerStore(
                ledger.path,
                durability=ledger.durability,
                on_failure=ledger.on_failure,
                max_lag_s=ledger.max_lag_s,
                usage_days=ledger.usage_days,
                told=report_ledger,
            )
        for settings in config.models:
            if settings.loaded:
                self.add(open_model(settings, self.tenancy.config, self._wake.set))

    def add(self, model: ServedModel) -> None:
        """Make the model resident."""
        model.prepare_grammars()
        self.models = {**self.models, model.id: model}
        if self._store is not None:
            self._store.add(model.id, model.core.ledger)

    def remove(self, model: ServedModel) -> None:
        """Remove the model and free its resources."""
        self.models = {id: other for id, other in self.models.items() if other is not model}
        self._end(model, f"{model.id} was unloaded", "model_unloaded")
        self._close_model(model)

    def _step(self) -> bool:
        """Run a step of the next model. Return False if no model has work."""
        for model in order_by_turn(self.models.values()):
            try:
                deliveries = model.step()
            except Exception as error:  # the device did not come back
                self._lose_model(f"the device of {model.id}", error)
                return True
            if deliveries is not None:
                self._deliver(deliveries)
                return True
        return False

    def _lose_model(self, what: str, error: Exception) -> None:
        message = error.message if isinstance(error, ZincError) else f"{type(error).__name__}: {error}"
        text = f"{what} is lost: {message}"
        for model in self.models.values():  # they share the device, and this process is to end
            self._end(model, text, "device_lost")
        if not self._lost.done():
            self._lost.set_result(text)

    def _end(self, model: ServedModel, reason: str, code: str) -> None:
        """Fail all requests of a model."""
        model.lost_code, model.lost = code, reason
        streams = list(model.streams.values())  # one that comes meanwhile finds it lost, in `submit`
        model.streams.clear()
        for stream in streams:
            _call_soon(stream.loop, partial(stream.fail, make_unavailable_error(reason, code, 10)))

    def _check_files(self) -> None:
        """Check once a minute for model files that changed on disk. Such a model would load other weights after
        the next hang, or is already reading them.
        """
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        for model in self.models.values():
            if not model.lost and (changed := next(filter(None, (file.changed() for file in model.files)), "")):
                self._end(model, changed, "model_changed")
                self._close_model(model)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Deliver output to the event loop with one call. All streams share the loop."""
        loops = {stream.loop for stream, _ in deliveries}
        for loop in loops:
            _call_soon(loop, partial(_put, [delivery for delivery in deliveries if delivery[0].loop is loop]))

    def _compute_seconds_until_due(self) -> float:
        """Return the seconds until a scheduler timer or the next file check is due."""
        due = [
            index
            for model in self.models.values()
            if not model.lost and (index := model.core.scheduler.find_next_event())
        ]
        due.append(int(self._look_at * 1e9))
        return max(0.0, (min(due) - time.monotonic_ns()) / 1e9)

    def _close_model(self, model: ServedModel) -> None:
        if model.core.closed:
            return
        model.close()
        if findings := model.findings():
            count = model.marked_answers
            self._findings.append(f"{findings}; {count} answer{'s' * (count != 1)} marked")

    def _close(self) -> None:
        self._ended = True
        self._run_calls()
        for model in self.models.values():
            self._close_model(model)
        if self._store is not None:
            self._unwritten = self._store.close().degraded


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # it is closed: its clients are gone
        loop.call_soon_threadsafe(callback)


def _put(deliveries: Iterable[Delivery]) -> None:
    for stream, delivered in deliveries:
        stream.put(delivered)
