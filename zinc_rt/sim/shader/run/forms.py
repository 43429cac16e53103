"""The functions of instruction forms: compiled once for all kernels, cached in memory and on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa import Instruction
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.sim.shader.emit.float_mode import FloatMode
from zinc_rt.sim.shader.emit.form import NotShared, build_run
from zinc_rt.sim.shader.emit.frame import WAVE_FUNCTION
from zinc_rt.sim.shader.emit.helpers import KernelModule
from zinc_rt.sim.shader.emit.slots import Touched
from zinc_rt.sim.shader.layout import KernelVariant
from zinc_rt.sim.shader.run.compile import LoadedCode, code_identity, compile_forms, pack_code, unpack_code
from zinc_rt.sim.shader.run.form_catalogue import FormCatalogue
from zinc_rt.sim.shader.run.helpers import HelperLibrary
from zinc_rt.sim.shader.translate.forms import EmittedForm, FormShape, Situation, emit_form, exact_shape, shape_of
from zinc_rt.sim.shader.translate.program import FormEffects

RUN = "zrt.run"
FORMS_KEPT = 1 << 15  # in memory, of each of the tables
KEY_DIGITS = 32


@dataclass(slots=True, eq=False)
class Form:
    """A form in a situation. `library` keeps its code loaded; None until it is compiled."""

    key: str
    name: str
    emitted: EmittedForm
    library: LoadedCode | None = None

    @property
    def address(self) -> int:
        assert self.library is not None
        return self.library.at[self.name]


class _Kind:
    """The forms in memory of one kind of kernel: chip generation, wave size, checks, launch mode."""

    def __init__(self) -> None:
        self.shapes: dict[Any, FormShape] = {}  # by an instruction's words
        self.effects: dict[Any, FormEffects | None] = {}  # by a shape's key; None: needs an exact shape
        self.placed: dict[Any, FormEffects] = {}  # by a shape's key and its registers
        self.forms: dict[Any, Form] = {}  # by a shape's key and a situation's
        self.by_key: dict[str, Form] = {}
        self.catalogues: WeakKeyDictionary[ObjectCache, FormCatalogue] = WeakKeyDictionary()

    def trim(self) -> None:
        """Forget everything once a table is too large: a client may make up code."""
        tables: tuple[dict[Any, Any], ...] = (self.shapes, self.effects, self.placed, self.forms, self.by_key)
        if any(len(table) > FORMS_KEPT for table in tables):
            for table in tables:
                table.clear()


_kinds: dict[Any, _Kind] = {}  # shared in this process for all caches: the key is complete
_libraries: WeakValueDictionary[str, LoadedCode] = WeakValueDictionary()  # forms and kernels own them


class FormLibrary:
    """The forms of one kernel while it is translated: a FormProvider. Call `finish` afterwards."""

    def __init__(self, cache: ObjectCache, variant: KernelVariant) -> None:
        self._cache, self._variant = cache, variant
        generation = variant.target.generation
        self._helpers = helpers = HelperLibrary(cache, generation, variant.wave, variant.checks)
        target = find_control_flow(variant.code, variant.target, variant.entry, running=True).target
        self._key = (target.isa, target.true16, variant.wave, repr(variant.checks), variant.mode)
        self._kind = _kinds.setdefault(self._key, _Kind())
        catalogue = self._kind.catalogues.get(cache)
        if catalogue is None:
            catalogue = self._kind.catalogues[cache] = FormCatalogue(cache, self._digest("catalogue"))
        self._catalogue = catalogue
        self._is_exact = variant.dynamic_vgprs or variant.checks.trace or variant.checks.defect
        self._shared = helpers.shared()
        self._module = KernelModule("forms", self._shared)
        self._new: dict[Any, Form] = {}
        self._new_effects: dict[str, FormEffects | None] = {}
        self._numbers: dict[str, int] = {}
        self._refreshed = False
        self.forms: list[Form] = []  # by number

    # --- translate.program.FormProvider

    def shape(self, instruction: Instruction) -> FormShape:
        if self._is_exact:
            return self._exact_shape(instruction)
        shape = self._kind.shapes.get(instruction.words)
        if shape is None:
            shape = shape_of(instruction) or self._exact_shape(instruction)
            self._kind.shapes[instruction.words] = shape
        if shape.groups is None or shape.end > self._variant.vgprs or self._effects(shape) is None:
            return self._exact_shape(instruction)
        return shape

    def effects(self, shape: FormShape) -> FormEffects:
        key = shape.key, shape.starts
        placed = self._kind.placed.get(key)
        if placed is None:
            effects = self._effects(shape)
            assert effects is not None
            placed = self._kind.placed[key] = FormEffects(_placed(effects.touched, shape), effects.ends)
        return placed

    def emitted(
        self, shape: FormShape, at: Situation, instruction: Instruction | None
    ) -> tuple[int, FormShape, EmittedForm]:
        try:
            form = self._form(shape, at)
        except NotShared:
            assert instruction is not None
            shape = self._exact_shape(instruction)
            form = self._form(shape, at)
        number = self._numbers.get(form.key)
        if number is None:
            number = self._numbers[form.key] = len(self.forms)
            self.forms.append(form)
        return number, shape, form.emitted

    # --- after the translation

    def finish(self) -> None:
        """Compile the new forms."""
        new = list(self._new.values())
        if not new:
            return
        self._helpers.add(self._shared)
        names = [form.name for form in new]
        payload = pack_code({"names": names, "helpers": self._module.called}, compile_forms(str(self._module)))
        key = self._digest("library", [form.key for form in new])
        self._cache.store(key, payload)
        self._catalogue.add(key, {form.key: (form.name, form.emitted) for form in new}, self._new_effects)
        library = _linked(self._helpers, key, payload)
        assert library is not None, "the library lacks functions that were generated"
        for form in new:
            form.library = library
        self._kind.trim()
        self._kind.forms.update(self._new)
        self._kind.by_key.update((form.key, form) for form in new)

    def stored(self, key: str) -> Form | None:
        """Return the compiled form of this key, or None if it is neither in memory nor on disk."""
        form = self._kind.by_key.get(key)
        if form is not None:
            return form
        stored = self._catalogue.forms.get(key)
        if stored is None and not self._refreshed:
            self._refreshed = True
            self._catalogue.refresh()
            stored = self._catalogue.forms.get(key)
        library = None if stored is None else self._library(stored.library)
        if stored is None or library is None:
            return None
        form = self._kind.by_key[key] = Form(key, stored.name, stored.emitted, library)
        return form

    def run_address(self) -> int:
        """Return the address of the wave function of kernels that consist of records."""
        shared = self._helpers.shared()
        shared.write(RUN, WAVE_FUNCTION, build_run)
        self._helpers.add(shared)
        addresses = self._helpers.addresses([RUN])
        assert addresses is not None
        return addresses[RUN]

    # --- details

    def _exact_shape(self, instruction: Instruction) -> FormShape:
        key = instruction.words, self._variant.vgprs, self._variant.dynamic_vgprs
        shape = self._kind.shapes.get(key)
        if shape is None:
            shape = self._kind.shapes[key] = exact_shape(instruction, *key[1:])
        return shape

    def _effects(self, shape: FormShape) -> FormEffects | None:
        """Return the effects on the form's registers, None if it is not shared."""
        known = self._kind.effects
        if shape.key not in known:
            key, stored = self._digest("effects", shape.key), self._catalogue.effects
            if key not in stored:
                self._new_effects[key] = stored[key] = self._emitted_effects(shape)
            known[shape.key] = stored[key]
        return known[shape.key]

    def _emitted_effects(self, shape: FormShape) -> FormEffects | None:
        launch = Situation(full=False, mode=FloatMode(self._variant.mode))
        module = KernelModule("effects", self._shared)
        try:
            emitted, touched = emit_form(module, "form", shape, self._variant, launch)
        except NotShared:
            return None
        return FormEffects(touched, emitted.ends)

    def _form(self, shape: FormShape, at: Situation) -> Form:
        own = at.of_form(shape)
        key = shape.key, own.key()
        form = self._kind.forms.get(key) or self._new.get(key)
        if form is None:
            digest = self._digest("form", key)
            form = self.stored(digest)
            if form is None:
                form = self._new[key] = self._emit(digest, shape, own)
            else:
                self._kind.forms[key] = form
        return form

    def _emit(self, key: str, shape: FormShape, at: Situation) -> Form:
        name = f"form.{len(self._new)}"
        try:
            emitted, _ = emit_form(self._module, name, shape, self._variant, at)
        except NotShared:
            del self._module.globals[name]
            raise
        return Form(key, name, emitted)

    def _library(self, key: str) -> LoadedCode | None:
        """Return the library of a cache key, None if it is no longer on disk."""
        library = _libraries.get(key)
        if library is None:
            payload = self._cache.load(key)
            library = None if payload is None else _linked(self._helpers, key, payload)
        return library

    def _digest(self, *parts: Any) -> str:
        text = repr((*parts, self._key, code_identity()))
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def _linked(helpers: HelperLibrary, key: str, payload: bytes) -> LoadedCode | None:
    row, code = unpack_code(payload)
    called = helpers.addresses(row["helpers"])
    if called is None:
        return None
    library = _libraries[key] = LoadedCode(code, row["names"], called)
    return library


_SETS = [each.name for each in fields(Touched) if each.type == "int"]
_FLAGS = [each.name for each in fields(Touched) if each.type == "bool"]


def _placed(touched: Touched, shape: FormShape) -> Touched:
    if shape.groups is None:
        return touched
    placed = Touched()
    for name in _SETS:
        setattr(placed, name, shape.placed(getattr(touched, name)))
    for name in _FLAGS:
        setattr(placed, name, getattr(touched, name))
    return placed
