"""Executable kernels: translated, compiled and loaded machine code, cached in memory and on disk.

A kernel that was not prepared consists of records of instruction forms (run/forms.py), to reduce the time to
its first result. After it has run for HOT_SECONDS another process compiles it with optimisation, and later
launches use that code.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa import Target
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.layout import Checks, KernelVariant, Site, aligned
from zinc_rt.sim.shader.run.background import Background
from zinc_rt.sim.shader.run.compile import LoadedCode, code_identity, compile_ir, pack_code, unpack_code
from zinc_rt.sim.shader.run.forms import FormLibrary
from zinc_rt.sim.shader.run.group_shapes import make_group_shapes
from zinc_rt.sim.shader.translate.program import RecordProgram
from zinc_rt.sim.shader.translate.translation import Translation, translate, translated_to_program

HOT_SECONDS = 1.0  # seconds of unoptimised execution, about the cost of an optimised compilation
KEPT_KERNELS = 2048  # in memory; a client that makes up code makes thousands a minute


def choose_variant(
    launch: LaunchSetup, target: Target, code: bytes, checks: Checks, entry: int = 0
) -> KernelVariant:
    """Return the variant of a kernel for a launch on a chip; it is valid for all waves of the launch."""
    full = all(int(group_shape["threads"][0]) % launch.wave == 0 for group_shape in make_group_shapes(launch))
    user_sgprs, dynamic = launch.entry_sgprs, launch.dynamic_vgprs
    target = target.with_wave(launch.wave)
    return KernelVariant(code, target, full, checks, launch.vgprs, user_sgprs, entry, launch.mode, dynamic)


@dataclass(slots=True, eq=False)
class CompiledKernel:
    """A compiled kernel. `address`: i32 wave(state, context). `counts`: numbers of memory sites and blocks.
    `memory_pcs`: the instruction of each memory site. `quick`: it consists of records, at the address `records`
    (emit/form.py), instead of code of its own. `seconds`: run time, summed over threads.
    """

    variant: KernelVariant
    address: int
    sites: tuple[Site, ...]
    counts: dict[str, int]
    memory_pcs: tuple[int, ...]
    keep: object = field(repr=False)
    quick: bool = False
    seconds: float = 0.0
    records: int = 0


def make_cache_key(variant: KernelVariant, *, quick: bool = False) -> str:
    """Return the disk cache key of code compiled for this processor by these sources. Chips of one instruction
    set share it.
    """
    parts = [getattr(variant, field.name) for field in fields(variant) if field.name not in ("code", "target")]
    parts += [variant.target.isa, variant.target.true16, variant.wave]
    text = json.dumps([*parts, code_identity(), quick], default=repr)
    return hashlib.sha256(text.encode() + b"\0" + variant.code).hexdigest()


def compile_variant(variant: KernelVariant) -> bytes:
    """Return a compiled kernel's cache entry: sites and counts, then object code."""
    return _make_payload(result := translate(variant), compile_ir(result.text))


def _make_payload(made: Translation, code: bytes) -> bytes:
    return pack_code({"function": made.function, **_tables(made)}, code)


def _tables(made: Translation | RecordProgram) -> dict[str, Any]:
    sites = [(each.pc, each.rule, each.text) for each in made.sites]
    return {"sites": sites, "counts": made.counts, "memory_pcs": made.memory_pcs}


def load_variant(variant: KernelVariant, payload: bytes) -> CompiledKernel:
    """Load a compiled kernel."""
    about, code = unpack_code(payload)
    linked = LoadedCode(code, [about["function"]])
    sites = tuple(Site(*item) for item in about["sites"])
    address, memory_pcs = linked.at[about["function"]], tuple(about["memory_pcs"])
    return CompiledKernel(variant, address, sites, about["counts"], memory_pcs, linked)


def program_payload(variant: KernelVariant, forms: FormLibrary) -> bytes:
    """Return the cache entry of a kernel as records: tables, then the arrays of its RecordProgram."""
    program = translated_to_program(variant, forms)
    forms.finish()
    keys = [form.key for form in forms.forms]
    about = {"forms": keys, "words": program.words.size, **_tables(program)}
    return pack_code(about, program.words.tobytes() + program.places.tobytes() + program.numbers.tobytes())


def loaded_program(variant: KernelVariant, payload: bytes, forms: FormLibrary) -> CompiledKernel | None:
    """Load a kernel that consists of records. Return None if its forms are no longer on disk."""
    about, data = unpack_code(payload)
    stored = [forms.stored(key) for key in about["forms"]]
    used = [form for form in stored if form is not None]
    if len(used) < len(stored):
        return None
    words = aligned(4 * about["words"])
    words[:] = np.frombuffer(data, np.uint8, words.size)
    places, numbers = np.frombuffer(data, np.int64, offset=words.size).reshape(2, -1)
    addresses = np.array([form.address for form in used], np.uint64)
    words.view(np.uint64)[places // 2] = addresses[numbers]
    sites = tuple(Site(*item) for item in about["sites"])
    keep = words, {form.library for form in used}
    records, memory_pcs = int(words.ctypes.data), tuple(about["memory_pcs"])
    return CompiledKernel(
        variant, forms.run_address(), sites, about["counts"], memory_pcs, keep, True, records=records
    )


class CompiledKernels:
    """A cache of kernels. `of(variant)` compiles at most once in this process and once on this machine.
    `quick`: kernels that were not prepared start as quick code.
    """

    def __init__(self, cache: ObjectCache | None = None, *, quick: bool = False) -> None:
        self.cache = ObjectCache() if cache is None else cache
        self.quick = quick
        self._known: dict[KernelVariant, CompiledKernel] = {}
        self._background = Background(self.cache)
        self.compiled = 0  # not found on disk

    def of(self, variant: KernelVariant) -> CompiledKernel:
        """Return the best code currently available."""
        better = self._known.get(variant)
        if better is None:
            better = self._known[variant] = self._load(variant)
            if len(self._known) > KEPT_KERNELS:
                self._known.pop(next(iter(self._known)), None)  # the oldest; the disk has it still
        elif better.quick and better.seconds >= HOT_SECONDS:
            better = self._known[variant] = self._find_better(better) or better
        return better

    def is_outdated(self, kernel: CompiledKernel) -> bool:
        """Return whether a repeated launch should look the kernel up again."""
        return kernel.quick and self.of(kernel.variant) is not kernel

    def has(self, variant: KernelVariant) -> bool:
        """Return whether the variant is already compiled."""
        known = self._known.get(variant)
        return (known is not None and not known.quick) or self.cache.path(make_cache_key(variant)).exists()

    def _load(self, variant: KernelVariant) -> CompiledKernel:
        key = make_cache_key(variant)
        payload = self.cache.load(key)
        if payload is None:
            if self.quick and not variant.checks.debug:  # records have no calls of a debugger
                return self._load_quick(variant)
            self.compiled += 1
            payload = compile_variant(variant)
            self.cache.store(key, payload)
        return load_variant(variant, payload)

    def _load_quick(self, variant: KernelVariant) -> CompiledKernel:
        key = make_cache_key(variant, quick=True)
        forms = FormLibrary(self.cache, variant)
        payload = self.cache.load(key)
        kernel = None if payload is None else loaded_program(variant, payload, forms)
        if kernel is None:
            self.compiled += 1
            payload = program_payload(variant, forms)
            self.cache.store(key, payload)
            kernel = loaded_program(variant, payload, forms)
            assert kernel is not None, "a form is missing that was just compiled"
        return kernel

    def _find_better(self, kernel: CompiledKernel) -> CompiledKernel | None:
        """Return the optimised kernel if the background process has finished it, otherwise request it."""
        if not self._background.done(kernel.variant):
            return None
        payload = self.cache.load(make_cache_key(kernel.variant))
        return None if payload is None else load_variant(kernel.variant, payload)
