"""The page docs/first-card.md: what the simulated device assumes, with the probe that settles each assumption.

    python -m zinc_rt.probes.learning.first_card > docs/first-card.md

It is generated from zinc_rt/host/facts.yaml; tests/host/test_first_card.py fails if the page differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from zinc_rt.host.facts import Fact, load_table
from zinc_rt.sim.profiles import VERSIONS

KINDS = {
    "kernel": "Linux",
    "ioctl": "Linux",
    "userq": "Linux",
    "kfd": "Linux",
    "file": "Linux",
    "memory": "memory and caches",
    "cache": "memory and caches",
    "packet": "packets",
    "aql": "packets",
    "cp": "packets",
    "chip": "boards",
    "topology": "boards",
    "alu": "instructions",
    "vgprs": "instructions",
    "launch": "instructions",
    "time": "time",
}
OTHER = "findings, learned facts and the predictor"

TOP = """\
# What the first card will meet

No card has run this code yet. The simulated device follows {count} rules of Linux, firmware and the chip. Of
these, {read} have a source: a vendor's document, a project's source code, or a measurement. The other {assumed}
({percent:.0f} %) are assumptions, listed below with the probe or the work that settles each. `zinc-rt
assumptions` shows the same list with the probes that depend on each row, and `zinc-rt assumptions --flip ID`
runs them with the assumption negated.

This page is generated from `zinc_rt/host/facts.yaml` ([facts](facts.md)):

```
python -m zinc_rt.probes.learning.first_card > docs/first-card.md
```

## What Linux does differently from what one expects

- **T2 is off by default.** Every Linux from 6.16 on needs `amdgpu.user_queue=1` and recent firmware (probe
  P06).
- **Flags of host memory.** Linux before 6.18 refuses the creation flags COHERENT and UNCACHED. T2 does not use
  them: the mapping's memory type makes host memory uncached. P12 reports whether this Linux accepts them.
- **VRAM in host memory.** GEM_CREATE succeeds when VRAM is full and places the buffer in host memory. T2 asks
  GEM_OP where each VRAM buffer may be, and reports ENOMEM. Linux may still evict a buffer later, when other
  programs need VRAM: `accept` reports how many buffers moved during its run (AMDGPU_INFO_NUM_EVICTIONS, of all
  programs); `drm-memory-vram` in `/proc/PID/fdinfo` shows whose.
- **A small BAR.** GEM_CREATE drops the request for CPU access and succeeds; the buffer moves to host memory
  when the CPU writes it. T2 compares the two VRAM sizes of AMDGPU_INFO and stages through host memory instead,
  as T1 does.
- **No context save on T2.** From 6.18 on Linux waits 2.1 s for a user queue to stop, then treats it as hung. T2
  splits prompts so that a submission stays below 1 s; a report names the limit. A proposed change adds a save
  area and a larger MQD: T2 tries both sizes, and `--device sim:gfx1201@7.0+userq-cwsr` simulates it.
- **Hangs on T2.** Linux watches a user queue only for fences of USERQ_SIGNAL, from 7.2 on. T2 does not call it,
  because FREE of a hung queue then waits without limit (6.19 and later). So the deadline of the program finds a
  hang.
- **Linux 6.18.0 crashes** if the EOP buffer of a user queue is not mapped; no probe tries that.

## Differences between Linux versions

[driver-map.md](driver-map.md#linux-versions) lists them with the tests of each. Proposed changes that are not
merged, as `--device sim:CHIP@VERSION+NAME`:

{proposals}
"""


def build_page() -> str:
    """Return the page."""
    facts = list(load_table().values())
    assumed = [row for row in facts if row.assumed]
    proposed = [row for row in facts if row.kind == "proposed"]
    parts = [
        TOP.format(
            count=len(facts),
            read=len(facts) - len(assumed),
            assumed=len(assumed),
            percent=100 * len(assumed) / len(facts),
            proposals=format_rows(
                ("name", "change", "source"),
                ((f"`{row.id.partition('/')[2]}`", row.says, row.where) for row in proposed),
            ),
        )
    ]
    for title in (*dict.fromkeys(KINDS.values()), OTHER):
        rows = [row for row in assumed if KINDS.get(row.kind, OTHER) == title]
        if rows:
            cells = ((f"`{row.id}`", row.says, "; ".join(row.settled_by)) for row in rows)
            parts.append(f"\n## Assumptions: {title}\n\n{format_rows(('row', 'assumed', 'settled by'), cells)}\n")
    return "".join(parts)


def format_versions(row: Fact) -> str:
    """Return the values of a difference between Linux versions, each with the first version that has it."""
    words = {True: "yes", False: "no"}
    values = {version: row.versions[version] for version in VERSIONS if version in row.versions}
    return "; ".join(
        f"{item}: {words[value] if isinstance(value, bool) else value}" for item, value in values.items()
    )


def format_rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown, without a newline at its end."""
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(build_page())
