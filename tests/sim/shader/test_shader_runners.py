"""Machine code that launches share stays loaded: that of the workgroup runner and of helpers."""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from shader_launch import STORE_IDS

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.launch_setup import FLOAT_MODE, LaunchSetup
from zinc_rt.sim.shader.layout import Checks
from zinc_rt.sim.shader.run import group_runner, helpers
from zinc_rt.sim.shader.run.compile import LoadedCode, compile_forms, pack_code
from zinc_rt.sim.shader.run.helpers import HelperLibrary
from zinc_rt.sim.shader.run.kernels import CompiledKernels, choose_variant
from zinc_rt.sim.shader.run.launch_run import LaunchRun, WaveThreads

CHECKS = Checks("fast")
SEVEN = pack_code({"calls": []}, compile_forms('define i32 @"zrt.seven"() { ret i32 7 }'))


class Meeting:
    """Lets a second thread ask for code while a first one loads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, load: Callable[[], object]) -> None:
        self._load, self._first = load, threading.current_thread()
        self._arrived = threading.Event()
        self._second = threading.Thread(target=self._run)
        self.results: list[object] = []
        lock, meeting = module._lock, self

        class Lock:
            def __enter__(self) -> None:
                meeting._arrive()
                lock.acquire()

            def __exit__(self, *error: object) -> None:
                lock.release()

        class Met(LoadedCode):
            def __init__(
                self, code: bytes, names: Sequence[str], imports: Mapping[str, int] | None = None
            ) -> None:
                meeting._arrive()
                if not meeting._second.ident:
                    meeting._second.start()
                    assert meeting._arrived.wait(60)
                super().__init__(code, names, imports)

        monkeypatch.setattr(module, "_lock", Lock())
        monkeypatch.setattr(module, "LoadedCode", Met)

    def _arrive(self) -> None:
        if threading.current_thread() is not self._first:
            self._arrived.set()

    def _run(self) -> None:
        self.results.append(self._load())

    def run(self) -> None:
        self._run()
        self._second.join(60)
        assert len(self.results) == 2


def test_threads_that_load_the_runner_at_once_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two results would be one too many: the cache would drop one, whose address a launch may already have."""
    load = functools.cache(group_runner._load_runners.__wrapped__)
    monkeypatch.setattr(group_runner, "_load_runners", load)
    meeting = Meeting(monkeypatch, group_runner, group_runner.runners)
    meeting.run()
    first, second = meeting.results
    assert first is second is group_runner.runners()


def test_threads_that_compile_a_helper_at_once_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "_loaded", {})
    cache = ObjectCache(tmp_path)

    def load() -> dict[str, int] | None:
        library = HelperLibrary(cache, 12, 32, CHECKS)
        library._link("zrt.seven", SEVEN)
        return library.addresses(["zrt.seven"])

    meeting = Meeting(monkeypatch, helpers, load)
    meeting.run()
    first, second = meeting.results
    assert first == second == HelperLibrary(cache, 12, 32, CHECKS).addresses(["zrt.seven"])


def test_launch_keeps_the_runner_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_runner, "_load_runners", functools.cache(group_runner._load_runners.__wrapped__))
    launch = LaunchSetup((1, 1, 1), (32, 1, 1), (32, 1, 1), 32, (0, 4), vgprs=8)
    kernel = CompiledKernels(ObjectCache(tmp_path)).of(
        choose_variant(launch, make_default_target(), STORE_IDS, CHECKS)
    )
    run = LaunchRun(kernel, launch, WaveThreads(1), mode=FLOAT_MODE)
    runner = weakref.ref(group_runner.runners())
    group_runner._load_runners.cache_clear()
    gc.collect()
    assert runner() is not None, "the launch is going to call this code"
    del run
    gc.collect()
    assert runner() is None
