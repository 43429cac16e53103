"""Kernels ready to run: machine code translated, compiled and loaded, remembered in memory and on disk.

A kernel that nobody prepared is compiled quickly, so that its first result comes soon; once it has run for
HOT_SECONDS another process compiles it well, and later launches run that.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from zinc_rt.object_cache import ObjectCache
from zinc_rt.sim.shader.layout import Checks, KernelVariant, Site
from zinc_rt.sim.shader.run.background import Background
from zinc_rt.sim.shader.run.compile import Loaded, compile_ir, compile_quickly, host_cpu
from zinc_rt.sim.shader.run.launch import LaunchSetup, group_shapes
from zinc_rt.sim.shader.translate.translation import translate

HOT_SECONDS = 0.25  # of running quick code: about what compiling well costs
KEPT_KERNELS = 2048  # in memory; a client that makes up code makes thousands a minute


def variant_for(launch: LaunchSetup, code: bytes, checks: Checks, entry: int = 0) -> KernelVariant:
    """The variant that a launch needs: one for all its waves."""
    full = all(int(each["threads"][0]) % launch.wave == 0 for each in group_shapes(launch))
    user_sgprs, dynamic = len(launch.user_data), launch.dynamic_vgprs
    return KernelVariant(code, launch.wave, full, checks, launch.vgprs, user_sgprs, entry, launch.mode, dynamic)


@dataclass(slots=True, eq=False)
class CompiledKernel:
    """`address`: i32 wave(state, context). `counts`: how many memory sites and blocks the translator numbered.
    `quick`: not optimised; `seconds`: for how long it ran, of all threads."""

    variant: KernelVariant
    address: int
    sites: tuple[Site, ...]
    counts: dict[str, int]
    keep: object = field(repr=False)
    quick: bool = False
    seconds: float = 0.0


@functools.cache
def own_sources() -> str:
    """Digest of the shader engine and the instruction tables: other code compiles other kernels."""
    digest = hashlib.sha256()
    shader = Path(__file__).parent.parent
    for folder in (shader, shader.parent.parent / "isa"):
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".tsv") and file.is_file():
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def cache_key(variant: KernelVariant, *, quick: bool = False) -> str:
    """Under which the disk keeps what was compiled for this processor by these sources."""
    parts = [getattr(variant, each.name) for each in fields(variant) if each.name != "code"]
    text = json.dumps([*parts, *astuple(host_cpu()), own_sources(), quick], default=repr)
    return hashlib.sha256(text.encode() + b"\0" + variant.code).hexdigest()


def compiled(variant: KernelVariant, *, quick: bool = False) -> bytes:
    """What the disk keeps of a kernel: sites and counts, then object code."""
    made = translate(variant)
    about = {
        "sites": [[site.pc, site.rule, site.text] for site in made.sites],
        "counts": made.counts,
        "function": made.function,
    }
    head = json.dumps(about).encode()
    return len(head).to_bytes(4, "little") + head + (compile_quickly if quick else compile_ir)(made.text)


def loaded(variant: KernelVariant, payload: bytes, *, quick: bool = False) -> CompiledKernel:
    size = int.from_bytes(payload[:4], "little")
    about = json.loads(payload[4 : 4 + size])
    library = Loaded(payload[4 + size :], [about["function"]])
    sites = tuple(Site(*each) for each in about["sites"])
    return CompiledKernel(variant, library.at[about["function"]], sites, about["counts"], library, quick)


class CompiledKernels:
    """`of(variant)` is compiled at most once in this process, and once on this machine. `quick`: those that nobody
    prepared begin as quick code."""

    def __init__(self, cache: ObjectCache | None = None, *, quick: bool = False) -> None:
        self.cache = ObjectCache() if cache is None else cache
        self.quick = quick
        self._known: dict[KernelVariant, CompiledKernel] = {}
        self._background = Background(self.cache)
        self.compiled = 0  # not found on disk

    def of(self, variant: KernelVariant) -> CompiledKernel:
        """The best code there is by now."""
        found = self._known.get(variant)
        if found is None:
            found = self._known[variant] = self._load(variant)
            if len(self._known) > KEPT_KERNELS:
                self._known.pop(next(iter(self._known)), None)  # the oldest; the disk has it still
        elif found.quick and found.seconds >= HOT_SECONDS:
            found = self._known[variant] = self._better(found) or found
        return found

    def outdated(self, kernel: CompiledKernel) -> bool:
        """Whether a launch that is run again should ask anew."""
        return kernel.quick and self.of(kernel.variant) is not kernel

    def has(self, variant: KernelVariant) -> bool:
        """Whether it needs no compiling."""
        known = self._known.get(variant)
        return (known is not None and not known.quick) or self.cache.path(cache_key(variant)).exists()

    def _load(self, variant: KernelVariant) -> CompiledKernel:
        payload = self.cache.load(cache_key(variant))
        if payload is not None or not self.quick:
            return loaded(variant, payload or self._compiled(variant))
        payload = self.cache.load(cache_key(variant, quick=True))
        return loaded(variant, payload or self._compiled(variant), quick=True)

    def _compiled(self, variant: KernelVariant) -> bytes:
        self.compiled += 1
        payload = compiled(variant, quick=self.quick)
        self.cache.store(cache_key(variant, quick=self.quick), payload)
        return payload

    def _better(self, kernel: CompiledKernel) -> CompiledKernel | None:
        """The kernel compiled well, where another process is done with it; it is asked to otherwise."""
        if not self._background.done(kernel.variant):
            return None
        payload = self.cache.load(cache_key(kernel.variant))
        return None if payload is None else loaded(kernel.variant, payload)
