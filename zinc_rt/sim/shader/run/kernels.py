"""Kernels ready to run: machine code translated, compiled and loaded, remembered in memory and on disk."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from zinc_rt.object_cache import ObjectCache
from zinc_rt.sim.shader.layout import Checks, Site
from zinc_rt.sim.shader.run.compile import Loaded, compile_ir, host
from zinc_rt.sim.shader.run.launch import Launch, shapes
from zinc_rt.sim.shader.translate.translation import Translation, translate


@dataclass(frozen=True, slots=True)
class Wanted:
    """What machine code depends on. `full`: every lane of every wave exists, so EXEC is all ones at the start."""

    code: bytes
    wave: int
    full: bool
    checks: Checks
    vgprs: int
    sgprs: int
    user_sgprs: int
    entry: int = 0

    def key(self) -> str:
        about = host()
        parts = [self.wave, self.full, repr(self.checks), self.vgprs, self.sgprs, self.user_sgprs, self.entry]
        text = json.dumps([*parts, about.cpu, about.features, about.version, own_sources()])
        return hashlib.sha256(text.encode() + b"\0" + self.code).hexdigest()


def wanted_for(launch: Launch, code: bytes, checks: Checks, entry: int = 0) -> Wanted:
    """The variant that a launch needs: one for all its waves."""
    full = all(int(each["threads"][0]) % launch.wave == 0 for each in shapes(launch))
    return Wanted(code, launch.wave, full, checks, launch.vgprs, launch.sgprs, len(launch.user_data), entry)


@dataclass(slots=True, eq=False)
class Kernel:
    """`address`: i32 wave(state, context). `counts`: how many memory sites and blocks the translator numbered."""

    wanted: Wanted
    address: int
    sites: tuple[Site, ...]
    counts: dict[str, int]
    keep: object = field(repr=False)


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


def build(wanted: Wanted) -> bytes:
    """What the disk keeps of a kernel: sites and counts, then object code."""
    made = translate(
        wanted.code,
        wave=wanted.wave,
        full=wanted.full,
        checks=wanted.checks,
        vgprs=wanted.vgprs,
        sgprs=wanted.sgprs,
        user_sgprs=wanted.user_sgprs,
        entry=wanted.entry,
    )
    return packed(made)


def packed(made: Translation) -> bytes:
    about = {
        "sites": [[site.pc, site.rule, site.text] for site in made.sites],
        "counts": made.counts,
        "function": made.function,
    }
    head = json.dumps(about).encode()
    return len(head).to_bytes(4, "little") + head + compile_ir(made.text)


def loaded(wanted: Wanted, payload: bytes) -> Kernel:
    size = int.from_bytes(payload[:4], "little")
    about = json.loads(payload[4 : 4 + size])
    library = Loaded(payload[4 + size :], [about["function"]])
    sites = tuple(Site(*each) for each in about["sites"])
    return Kernel(wanted, library.at[about["function"]], sites, about["counts"], library)


class Kernels:
    """`of(wanted)` is compiled at most once in this process, and once on this machine."""

    def __init__(self, cache: ObjectCache | None = None) -> None:
        self.cache = ObjectCache() if cache is None else cache
        self._known: dict[Wanted, Kernel] = {}
        self.compiled = 0  # not found on disk

    def of(self, wanted: Wanted) -> Kernel:
        found = self._known.get(wanted)
        if found is None:
            found = self._known[wanted] = self._load(wanted)
        return found

    def has(self, wanted: Wanted) -> bool:
        """Whether it needs no compiling."""
        return wanted in self._known or self.cache.path(wanted.key()).exists()

    def _load(self, wanted: Wanted) -> Kernel:
        key = wanted.key()
        payload = self.cache.load(key)
        if payload is None:
            self.compiled += 1
            payload = build(wanted)
            self.cache.store(key, payload)
        return loaded(wanted, payload)
