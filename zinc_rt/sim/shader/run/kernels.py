"""Executable kernels: translated, compiled and loaded machine code, cached in memory and on disk.

A kernel that was not prepared is compiled quickly, to reduce the time to its first result. After it has run for
HOT_SECONDS another process compiles it with optimisation, and later launches use that code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa import Target
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.layout import Checks, KernelVariant, Site
from zinc_rt.sim.shader.run.background import Background
from zinc_rt.sim.shader.run.compile import Loaded, compile_ir, compile_quickly, host_cpu, packed, unpacked
from zinc_rt.sim.shader.run.group_shapes import group_shapes
from zinc_rt.sim.shader.run.helpers import HelperLibrary
from zinc_rt.sim.shader.sources import own_sources
from zinc_rt.sim.shader.translate.translation import Translation, translate

HOT_SECONDS = 1.0  # seconds of unoptimised execution, about the cost of an optimised compilation
KEPT_KERNELS = 2048  # in memory; a client that makes up code makes thousands a minute


def variant_for(launch: LaunchSetup, target: Target, code: bytes, checks: Checks, entry: int = 0) -> KernelVariant:
    """Return the variant of a kernel for a launch on a chip; it is valid for all waves of the launch."""
    full = all(int(group_shape["threads"][0]) % launch.wave == 0 for group_shape in group_shapes(launch))
    user_sgprs, dynamic = len(launch.user_data), launch.dynamic_vgprs
    target = target.with_wave(launch.wave)
    return KernelVariant(code, target, full, checks, launch.vgprs, user_sgprs, entry, launch.mode, dynamic)


@dataclass(slots=True, eq=False)
class CompiledKernel:
    """A compiled kernel. `address`: i32 wave(state, context). `counts`: numbers of memory sites and blocks.
    `memory_pcs`: the instruction of each memory site. `quick`: not optimised. `seconds`: run time, summed over
    threads.
    """

    variant: KernelVariant
    address: int
    sites: tuple[Site, ...]
    counts: dict[str, int]
    memory_pcs: tuple[int, ...]
    keep: object = field(repr=False)
    quick: bool = False
    seconds: float = 0.0


def cache_key(variant: KernelVariant, *, quick: bool = False) -> str:
    """Return the disk cache key of code compiled for this processor by these sources. Chips of one generation
    share it.
    """
    parts = [getattr(variant, field.name) for field in fields(variant) if field.name not in ("code", "target")]
    parts += [variant.target.generation, variant.target.true16, variant.wave]
    text = json.dumps([*parts, *astuple(host_cpu()), own_sources(), quick], default=repr)
    return hashlib.sha256(text.encode() + b"\0" + variant.code).hexdigest()


def compiled(variant: KernelVariant) -> bytes:
    """Return a compiled kernel's cache entry: sites and counts, then object code."""
    return _payload(result := translate(variant), compile_ir(result.text))


def compiled_quickly(variant: KernelVariant, library: HelperLibrary) -> tuple[bytes, dict[str, int]]:
    """Return a cache entry like `compiled`, of quickly compiled code, and the addresses of its helpers in the
    library.
    """
    helpers = library.shared()
    result = translate(variant, helpers)
    library.add(helpers)
    addresses = library.addresses(result.helpers)
    assert addresses is not None, "the library lacks functions that were generated"
    return _payload(result, compile_quickly(result.text)), addresses


def _payload(translation: Translation, code: bytes) -> bytes:
    about = {
        "sites": [list(astuple(site)) for site in translation.sites],
        "counts": translation.counts,
        "memory_pcs": translation.memory_pcs,
        "function": translation.function,
        "helpers": translation.helpers,
    }
    return packed(about, code)


def loaded(variant: KernelVariant, payload: bytes, helpers: Mapping[str, int] | None = None) -> CompiledKernel:
    """Load a compiled kernel. `helpers`: addresses of the helpers called by quick code."""
    about, code = unpacked(payload)
    linked = Loaded(code, [about["function"]], helpers)
    sites = tuple(Site(*site) for site in about["sites"])
    address = linked.at[about["function"]]
    memory_pcs = tuple(about["memory_pcs"])
    return CompiledKernel(variant, address, sites, about["counts"], memory_pcs, linked, helpers is not None)


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
            better = self._known[variant] = self._better(better) or better
        return better

    def outdated(self, kernel: CompiledKernel) -> bool:
        """Return whether a repeated launch should look the kernel up again."""
        return kernel.quick and self.of(kernel.variant) is not kernel

    def has(self, variant: KernelVariant) -> bool:
        """Return whether the variant is already compiled."""
        known = self._known.get(variant)
        return (known is not None and not known.quick) or self.cache.path(cache_key(variant)).exists()

    def _load(self, variant: KernelVariant) -> CompiledKernel:
        key = cache_key(variant)
        payload = self.cache.load(key)
        if payload is None:
            if self.quick:
                return self._quick(variant)
            self.compiled += 1
            payload = compiled(variant)
            self.cache.store(key, payload)
        return loaded(variant, payload)

    def _quick(self, variant: KernelVariant) -> CompiledKernel:
        key = cache_key(variant, quick=True)
        library = HelperLibrary(self.cache, variant.wave, variant.checks)
        payload = self.cache.load(key)
        helpers = None if payload is None else library.addresses(unpacked(payload)[0]["helpers"])
        if payload is None or helpers is None:
            self.compiled += 1
            payload, helpers = compiled_quickly(variant, library)
            self.cache.store(key, payload)
        return loaded(variant, payload, helpers)

    def _better(self, kernel: CompiledKernel) -> CompiledKernel | None:
        """Return the optimised kernel if the background process has finished it, otherwise request it."""
        if not self._background.done(kernel.variant):
            return None
        payload = self.cache.load(cache_key(kernel.variant))
        return None if payload is None else loaded(kernel.variant, payload)
