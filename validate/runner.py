"""One model's validation: its dependencies, its engines, and each run, computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from zinc_rt.backends.base import Finding, read_findings
from zinc_rt.cli.observer import CommandObserver
from zinc_rt.engine.devices import ORACLE, open_backend
from zinc_rt.engine.engine import Engine, Prefill
from zinc_rt.engine.variants import BIT_DEFINED, EngineOptions
from zinc_rt.golden.capture import CapturedRun, Selection, capture_run
from zinc_rt.golden.format import Golden
from zinc_rt.host.errors import CheckFailed
from zinc_rt.host.settings import Settings
from zinc_rt.model.gguf import GGUFFile, digest_model
from zinc_rt.validate import cache
from zinc_rt.validate.check_result import CheckResult
from zinc_rt.validate.layers import LayerInput, Layers, transform
from zinc_rt.validate.nonfinite import has_nonfinite
from zinc_rt.validate.steps import StepWatch
from zinc_rt.validate.tiers import TierSpec

FORWARD, REFERENCE = "forward", "reference"  # a tier's own pass

# (runner, tier, the tokens it was fed after the prompt, the result that fails) -> that result with its artifacts
Smallest = Callable[["ValidationRunner", TierSpec, list[int], CheckResult], CheckResult]


@dataclass(frozen=True, slots=True)
class ValidationJob:
    """All parameters that determine the validation of one model."""

    gguf: GGUFFile
    name: str
    tiers: tuple[TierSpec, ...]
    tokens: list[int]
    steps: int
    ctx: int
    layers: Layers
    selection: Selection
    golden: Golden | None = None
    reference: TierSpec | None = None
    first_input: LayerInput | None = None
    resync: bool = False
    threads: int = 0
    timeout_seconds: float | None = None  # of a step; None: by the device
    settings: Settings = field(default_factory=Settings)
    observer: CommandObserver = field(default_factory=CommandObserver)
    use_cache: bool = True
    smallest: Smallest | None = None  # adds the smallest case that shows a failure again
    alone: bool = True  # a single tier is also held against itself
    repro: str = ""
    kv_type: str = "f32"
    prefill_ordering: str = ""


class ValidationRunner:
    """Opens one engine per tier and caches runs in memory and, for T-CPU, on disk."""

    def __init__(self, job: ValidationJob, say: Callable[[str], None] = lambda text: None) -> None:
        self.job = job
        self.say = say
        self._stack = ExitStack()
        self._engines: dict[TierSpec, Engine] = {}
        self.watches: dict[TierSpec, StepWatch] = {}
        self._runs: dict[str, CapturedRun] = {}
        self.from_disk: dict[str, None] = {}  # what was not computed now, in order
        # each tier's own pass, in the order they ran, nothing of another's fed to its layers
        self.own_passes: dict[TierSpec, CapturedRun] = {}

    def __enter__(self) -> ValidationRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def engine(self, spec: TierSpec) -> Engine:
        if spec not in self._engines:
            backend = open_backend(spec.choice, spec.ordering, threads=self.job.threads)
            watch = self.watches[spec] = StepWatch()
            engine = watch.engine = Engine(
                self.job.gguf,
                backend,
                ctx=self.job.ctx,
                kv_type=self.job.kv_type,
                options=EngineOptions(
                    observers=(watch,),
                    transform=transform(self.job.layers),
                    prefill_ordering=self.job.prefill_ordering if spec.ordering in BIT_DEFINED else "",
                    settings=self.job.settings,
                    timeout_seconds=self.job.timeout_seconds,
                    slow=self.say,
                    share_arenas=False,
                    highest_pages_first=True,
                    around=self.job.observer.around_engine,
                ),
            )
            self._engines[spec] = self._stack.enter_context(engine)
        return self._engines[spec]

    def run(
        self,
        spec: TierSpec,
        what: str,
        *,
        selection: Selection | None,
        prefill: Prefill = "batched",
        inject: dict[str, np.ndarray] | None = None,
        follow: list[int] | None = None,
        steps: int = 0,
        tokens: list[int] | None = None,
    ) -> CapturedRun:
        tokens = self.job.tokens if tokens is None else tokens
        prompt = min(len(tokens), len(self.job.tokens))  # what follows the prompt was decoded
        inject = {**(inject or {}), **self.inject()}
        key_of = partial(
            cache.compute_key,
            model=digest_model(self.job.gguf),
            tier=spec.name,
            tokens=tokens,
            ordering=spec.ordering,
            ctx=self.job.ctx,
            kv_type=self.job.kv_type,
            prefill_ordering=self.job.prefill_ordering,
            prompt=prompt if self.job.prefill_ordering else 0,
            layers=(self.job.layers.first, self.job.layers.last),
            selection=repr(selection),
            prefill=prefill,
            inject=inject,
            steps=steps,
            settings=repr(self.job.settings),
        )
        text = (
            f"{spec.name} {spec.ordering} {tokens} {prefill} {steps} {self.job.ctx} {self.job.layers} {selection} "
            f"{self.job.kv_type} {self.job.prefill_ordering}"
        )
        key = key_of(follow=follow)
        on_disk = self.job.use_cache and spec.tier == ORACLE.tier and not self.job.observer.records_engines
        known = self._runs.get(key) or (cache.load_run(key) if on_disk else None)
        if known is not None:
            if known.asked != text:
                raise CheckFailed(
                    f"{spec.text}: {what}: the cache returned the result of another run, {known.asked}: both "
                    "have the same key",
                    next="--no-cache; suspect validate/cache.py, key_of",
                )
            if known.cached:
                self.from_disk[f"{spec.text}: {what}"] = None
            return self._cache_run(spec, known, what)
        self.say(f"{spec.text}: {what}")
        engine = self.engine(spec)
        result = capture_run(
            engine,
            tokens,
            selection,
            prefill=prefill,
            inject=inject,
            steps=steps,
            follow=follow,
            watch=self.watches[spec],
            prompt=prompt,
        )
        result.asked = text
        self._runs[key] = self._runs[key_of(follow=result.generated)] = result  # as if it had been told its tokens
        if on_disk:
            cache.store_run(key, result)
        return self._cache_run(spec, result, what)

    def _cache_run(self, spec: TierSpec, run: CapturedRun, what: str) -> CapturedRun:
        if what in (FORWARD, REFERENCE):
            self.own_passes.setdefault(spec, run)
        return run

    def group_by_bits(self) -> list[list[str]]:
        """Return the tiers that ran, in groups whose recorded values of the prompt's pass are bit-identical."""
        groups: list[tuple[CapturedRun, list[str]]] = []
        for spec, run in self.own_passes.items():
            group = next(
                (names for other, names in groups if _has_equal_values(run, other, len(self.job.tokens))), None
            )
            if group is None:
                groups.append((run, [spec.text]))
            else:
                group.append(spec.text)
        return [names for _, names in groups]

    def find_nonfinite_tiers(self) -> Iterator[tuple[TierSpec, CapturedRun]]:
        """Return the tiers whose own pass contains a non-finite value."""
        return ((spec, run) for spec, run in self.own_passes.items() if has_nonfinite(run))

    def inject(self) -> dict[str, np.ndarray]:
        """Return the values that replace the layers before the first that runs."""
        if self.job.first_input is None or not self.job.layers.feed:
            return {}
        return {self.job.layers.feed: self.job.first_input.values}

    @property
    def simulated(self) -> tuple[TierSpec, ...]:
        """Return the tiers that run on a simulated device."""
        return tuple(spec for spec in self.job.tiers if spec.choice.simulated)

    def marks(self) -> dict[str, str]:
        """Return the kind of device of each tier that is not hardware, by the tier's text."""
        devices = {spec.text: self.engine(spec).backend.device for spec in self.job.tiers if spec in self._engines}
        return {
            text: "simulated" if device.simulated else "in software"
            for text, device in devices.items()
            if device.simulated or device.software
        }

    def findings(self) -> list[Finding]:
        """Return the findings of the simulated device that the tiers share."""
        spec = next((spec for spec in self.simulated if spec in self._engines), None)
        return read_findings(self.engine(spec).backend) if spec is not None else []

    def consulted(self) -> Sequence[str]:
        """Return the coverage of the simulated device that the tiers share: marks of zinc_rt/host/facts.py."""
        spec = next((spec for spec in self.simulated if spec in self._engines), None)
        instrument = self.engine(spec).backend.instrument if spec is not None else None
        return instrument.consulted() if instrument is not None else ()


def _has_equal_values(a: CapturedRun, b: CapturedRun, tokens: int) -> bool:
    values = a.values.keys() == b.values.keys() and all(
        a.values[label].tobytes() == value.tobytes() for label, value in b.values.items()
    )
    return values and a.logits[:tokens].tobytes() == b.logits[:tokens].tobytes()
