"""Helper functions shared by quickly compiled kernels: compiled once, cached in memory and on disk.

Without sharing, helpers would dominate the compilation time of a small kernel.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.sim.shader.emit.helpers import SharedHelpers
from zinc_rt.sim.shader.layout import Checks
from zinc_rt.sim.shader.run.compile import LoadedCode, code_identity, compile_forms, pack_code, unpack_code

_loaded: dict[str, LoadedCode] = {}  # shared in this process for all caches: the key is complete
_lock = threading.RLock()  # of _loaded: an entry is never replaced, because other code has its addresses


@dataclass(frozen=True, slots=True)
class HelperLibrary:
    """The helpers of kernels of a generation, wave size and checks."""

    cache: ObjectCache
    generation: int
    wave: int
    checks: Checks

    def shared(self) -> SharedHelpers:
        """Return the shared helpers for a translation, which adds new ones to them; see `add`."""
        return SharedHelpers(self._find_known)

    def add(self, written: SharedHelpers) -> None:
        """Compile and store the helpers written by a translation. A helper comes after those that it calls."""
        for name, (text, calls) in written.texts.items():
            payload = pack_code({"calls": calls}, compile_forms(text))
            self._link(name, payload)
            self.cache.store(self._key(name), payload)

    def addresses(self, names: Iterable[str]) -> dict[str, int] | None:
        """Return the addresses of helpers, or None if one is no longer on disk."""
        result = {}
        for name in names:
            library = _loaded.get(self._key(name))
            if library is None:
                payload = self.cache.load(self._key(name))
                library = None if payload is None else self._link(name, payload)
            if library is None:
                return None
            result[name] = library.at[name]
        return result

    def _find_known(self, name: str) -> bool:
        return self.addresses([name]) is not None

    def _link(self, name: str, payload: bytes) -> LoadedCode | None:
        about, code = unpack_code(payload)
        with _lock:
            result, called = _loaded.get(key := self._key(name)), self.addresses(about["calls"])
            if result is None and called is not None:
                result = _loaded[key] = LoadedCode(code, [name], called)
        return result

    def _key(self, name: str) -> str:
        parts = "helper", name, self.generation, self.wave, self.checks, code_identity()
        return hashlib.sha256(repr(parts).encode()).hexdigest()
