"""The index on disk of compiled instruction forms: one cache entry for each kind of kernel."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.sim.shader.emit.slots import Touched
from zinc_rt.sim.shader.translate.forms import EmittedForm
from zinc_rt.sim.shader.translate.program import FormEffects

FORMS_LISTED = 1 << 13  # of the libraries that were compiled last

_TOUCHED = [each.name for each in fields(Touched)]


@dataclass(frozen=True, slots=True)
class StoredForm:
    """A form in a library on disk: the library's cache key, and the name of the form's function in it."""

    library: str
    name: str
    emitted: EmittedForm


class FormCatalogue:
    """The compiled forms and the effects of shapes by their keys, as stored in the cache entry `key`."""

    def __init__(self, cache: ObjectCache, key: str) -> None:
        self._cache, self._key = cache, key
        self._read: set[str] = set()  # libraries
        self._last: tuple[bytes, list[dict[str, Any]]] = b"", []  # the entry's content and its rows
        self.forms: dict[str, StoredForm] = {}
        self.effects: dict[str, FormEffects | None] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have added."""
        for row in self._rows():
            self._add(row)

    def add(
        self, library: str, forms: dict[str, tuple[str, EmittedForm]], effects: dict[str, FormEffects | None]
    ) -> None:
        """Add a library with forms by key as (name of the function, form), and effects of shapes by key."""
        row = {
            "library": library,
            "forms": {key: [name, *_emitted_row(emitted)] for key, (name, emitted) in forms.items()},
            "effects": {key: _effects_row(each) for key, each in effects.items()},
        }
        rows = [*self._rows(), row]
        while len(rows) > 1 and sum(len(each["forms"]) for each in rows) > FORMS_LISTED:
            del rows[0]
        self._cache.store(self._key, json.dumps(rows).encode())
        self._add(row)

    def _rows(self) -> list[dict[str, Any]]:
        content = self._cache.load(self._key) or b""
        if content != self._last[0]:
            self._last = content, json.loads(content) if content else []
        return self._last[1]

    def _add(self, row: dict[str, Any]) -> None:
        library = row["library"]
        if library in self._read:
            return
        self._read.add(library)
        for key, (name, *emitted) in row["forms"].items():
            self.forms[key] = StoredForm(library, name, _emitted_of(*emitted))
        for key, effects in row["effects"].items():
            self.effects[key] = None if effects is None else FormEffects(Touched(*effects[1:]), effects[0])


def _effects_row(effects: FormEffects | None) -> list[Any] | None:
    return None if effects is None else [effects.ends, *(getattr(effects.touched, name) for name in _TOUCHED)]


def _emitted_row(emitted: EmittedForm) -> list[Any]:
    return [emitted.parameters, emitted.sites, emitted.memory_sites, emitted.ends, emitted.empty]


def _emitted_of(parameters: Any, sites: Any, memory_sites: int, ends: bool, empty: bool) -> EmittedForm:
    return EmittedForm(
        tuple((kind, number) for kind, number in parameters),
        tuple((rule, text) for rule, text in sites),
        memory_sites,
        ends,
        empty,
    )
