"""Import paths of version 0.1 keep working, and say where the module is now."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from zinc_rt import _moved

# imported by docs and examples of 0.1, or likely to be imported by programs
DOCUMENTED = (
    "zinc_rt.backends.base:Backend", "zinc_rt.backends.registry:spec", "zinc_rt.batching.answering:Answering",
    "zinc_rt.bundle.archive:write_folder", "zinc_rt.checked", "zinc_rt.commands.options:parse_tokens",
    "zinc_rt.compare.peer:PeerTask", "zinc_rt.devices:choose_tier", "zinc_rt.devices:open_backend",
    "zinc_rt.engine:Engine", "zinc_rt.errors:ZincError", "zinc_rt.exec:Graph", "zinc_rt.files:write_atomically",
    "zinc_rt.golden.check:check_golden", "zinc_rt.golden.embedded:FOLDER", "zinc_rt.kernels.weight:Weight",
    "zinc_rt.launching.launch:launch", "zinc_rt.llm:LLM", "zinc_rt.lower:lower", "zinc_rt.mem.heaps:BufferHeap",
    "zinc_rt.model.gguf:read_gguf", "zinc_rt.replay.run:replay", "zinc_rt.report:Report",
    "zinc_rt.sampling:Sampling",
    "zinc_rt.sched.tenant:Tenant", "zinc_rt.serve.grammars.grammar:Grammar", "zinc_rt.settings:Settings",
    "zinc_rt:LLM", "zinc_rt:Sampling", "zinc_rt:launch",
)  # fmt: skip

PROGRAM = """
import importlib, json, sys, warnings
out = []
for name in json.loads(sys.argv[1]):
    module, _, attribute = name.partition(":")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = importlib.import_module(module)
        if attribute:
            getattr(found, attribute)
    out.append([module, found.__name__, found.__spec__.name, [str(w.message) for w in caught
                if issubclass(w.category, DeprecationWarning) and "since 0.2" in str(w.message)]])
print(json.dumps(out))
"""


def import_names(names: list[str]) -> list[tuple[str, str, str, list[str]]]:
    """Import each in a new process; return the requested name, the module's name, the name in its spec, and the
    warnings.
    """
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(names)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return [tuple(load) for load in json.loads(result.stdout)]


@pytest.mark.rest
def test_documented_names_of_0_1_are_importable() -> None:
    assert len(import_names(list(DOCUMENTED))) == len(DOCUMENTED)


@pytest.mark.rest
def test_moved_module_is_aliased_to_new_path_and_warns_once() -> None:
    modules = [f"zinc_rt.{old}" for old in _moved.MOVED]
    for old, name, spec, warned in import_names(modules):
        assert name == spec == _moved.new_name(old), old
        assert warned == [f"{old} is {name} since 0.2"]


def test_module_inside_moved_package_moves_with_it() -> None:
    assert _moved.new_name("zinc_rt.bringup.bisect_env.command") == "zinc_rt.doctor.bringup.bisect_env.command"
    assert _moved.new_name("zinc_rt.golden.check") == "zinc_rt.validate.goldens.check"
    assert _moved.new_name("zinc_rt.golden.format") is None and _moved.new_name("numpy.devices") is None


@pytest.mark.filterwarnings("ignore:.*since 0.2:DeprecationWarning")
@pytest.mark.parametrize("name", ["zinc_rt.nothing", "zinc_rt.commands.nothing"])
def test_nonexistent_name_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__(name)
