"""Rules that match the matrix (probes/combinations.yaml) with this chip, kernel, module and firmware."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.rule import BOTH, DoctorRule, Observation
from zinc_rt.doctor.rules.firmware import PACKAGES
from zinc_rt.probes.combinations import Combination, MachineFacts, find_matching, load_combinations

MESA = ("vulkan-radeon", "mesa-vulkan-drivers", "libvulkan_radeon", "libgl1-mesa-dri", "mesa")


def gpu_facts(gpu: InspectedGpu, machine: InspectedMachine) -> MachineFacts:
    module = machine.module
    kind = None if module.dkms is None else "dkms" if module.dkms else "in-tree"
    version = module.version or ((machine.packages or {}).get("amdgpu-dkms") if module.dkms else None)
    parameters = dict(module.parameters)
    for word in machine.linux.cmdline or ():
        name, _, value = word.partition("=")
        if name.startswith("amdgpu."):
            parameters.setdefault(name.removeprefix("amdgpu."), value)
    packages = dict(machine.packages or {})
    own = next((packages[name] for name in PACKAGES if name in packages), None)
    if own is not None:
        packages["linux-firmware"] = own  # the part for AMD's GPUs, where a distribution splits it off
    mesa = next((packages[name] for name in MESA if name in packages), None)
    if mesa is not None:
        packages["mesa"] = mesa
    return MachineFacts(gpu.arch, machine.linux.release, kind, version, gpu.firmware, packages, parameters)


def find_matching_rows(machine: InspectedMachine) -> list[tuple[InspectedGpu, Combination]]:
    return [
        (gpu, row) for gpu in machine.is_relevant if gpu.arch for row in find_matching(gpu_facts(gpu, machine))
    ]


def find_pending_rows(machine: InspectedMachine) -> list[tuple[Combination, tuple[str, ...]]]:
    """Return the rows with verdict bad that would match if the unknown values met their conditions, with the kinds
    of those values.
    """
    result = []
    for gpu in machine.is_relevant:
        known = gpu_facts(gpu, machine)
        result += [
            (row, missing)
            for row in load_combinations()
            if row.verdict == "bad" and (missing := row.find_deciding_unknowns(known))
        ]
    return result


def _make_verdict_rule(verdict: str) -> Callable[[InspectedMachine], Iterator[Observation]]:
    def look(machine: InspectedMachine) -> Iterator[Observation]:
        for gpu, row in find_matching_rows(machine):
            if row.verdict == verdict:
                yield Observation(
                    f"{'known to fail' if verdict == 'bad' else 'reported'}: {row.what}",
                    (f"combinations.yaml: {row.format_statement()}",),
                    gpu.address,
                    next=row.next,
                    rows=(row.id,),
                    explains=row.symptoms if verdict == "bad" else (),
                )

    return look


_WHY = "this chip was reported with this kernel, module or firmware before"
RULES = (
    DoctorRule(
        "combination.bad",
        "warning",
        "known to fail",
        _WHY,
        "change one of them, as the source describes",
        BOTH,
        _make_verdict_rule("bad"),
    ),
    DoctorRule(
        "combination.suspect",
        "note",
        "reported to fail",
        _WHY,
        "if it fails here too, read the source and add a report there",
        BOTH,
        _make_verdict_rule("suspect"),
    ),
    DoctorRule("combination.good", "note", "reported to work", _WHY, "", BOTH, _make_verdict_rule("good")),
)
