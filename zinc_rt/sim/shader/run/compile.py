"""Compilation of LLVM IR to host machine code, and loading of that code into this process."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]

from zinc_rt.sim.shader.sources import digest_sources

PASSES_LEVEL = 1  # LLVM's -O1: measured, level 2 gives the same code for twice the time
CODE_LEVEL = 1  # of code generation: the same code as 2, a tenth sooner
MAX_INLINED = 225  # LLVM's own limit: helpers are cold and marked so


@dataclass(frozen=True, slots=True)
class HostCpu:
    """The host properties on which object code depends."""

    cpu: str
    features: str
    version: str  # of LLVM and its binding


@functools.cache
def detect_host_cpu() -> HostCpu:
    _initialise()
    features = llvm.get_host_cpu_features().flatten()
    return HostCpu(llvm.get_host_cpu_name(), features, f"{llvm.llvm_version_info} {llvmlite.__version__}")


@functools.cache
def code_identity() -> str:
    """Return a digest of what all compiled code depends on: the host's properties and the engine's sources."""
    return hashlib.sha256(repr((astuple(detect_host_cpu()), digest_sources())).encode()).hexdigest()


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


def make_target_machine(code_level: int = CODE_LEVEL) -> Any:
    """Return a TargetMachine for this host. Create one per use: LLVM keeps compilation state in it."""
    about = detect_host_cpu()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=about.cpu, features=about.features, opt=code_level, reloc="default", codemodel="jitdefault", jit=True
    )


def compile_ir(text: str, level: int = PASSES_LEVEL) -> bytes:
    """Compile the module to an object file. Raises RuntimeError if the IR is not valid."""
    module, target = optimise_ir(text, level)
    return bytes(target.emit_object(module))


def compile_forms(text: str) -> bytes:
    """Compile functions of instruction forms or their helpers, without passes: they are short."""
    target = make_target_machine()
    return bytes(target.emit_object(_parse_module(text, target)))


def _parse_module(text: str, target: Any) -> Any:
    module = llvm.parse_assembly(text)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(target.target_data)
    module.verify()
    return module


def optimise_ir(text: str, level: int = PASSES_LEVEL) -> tuple[Any, Any]:
    """Return the module after LLVM's passes, and the target machine it was optimised for."""
    target = make_target_machine()
    module = _parse_module(text, target)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.inlining_threshold = MAX_INLINED
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    return module, target


class LoadedCode:
    """Loaded functions of an object file, callable while this object exists. `at[name]` is an address.
    `imports` has the addresses of its external functions, except those of the C library.
    """

    def __init__(self, code: bytes, names: Sequence[str], imports: Mapping[str, int] | None = None) -> None:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        for name in names:
            builder.export_symbol(name)
        with _lock:
            self._library = builder.link(_make_linker(), f"shader{next(_numbers)}")
        self.at = {name: int(self._library[name]) for name in names}


_lock = threading.Lock()
_numbers = itertools.count()


@functools.cache
def _make_linker() -> Any:
    return llvm.create_lljit_compiler(make_target_machine())


_SIZE_BYTES = 4


def pack_code(about: dict[str, Any], code: bytes) -> bytes:
    head = json.dumps(about).encode()
    return len(head).to_bytes(_SIZE_BYTES, "little") + head + code


def unpack_code(payload: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(payload[:_SIZE_BYTES], "little")
    return json.loads(payload[_SIZE_BYTES : _SIZE_BYTES + size]), payload[_SIZE_BYTES + size :]
