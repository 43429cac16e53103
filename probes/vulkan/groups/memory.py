"""V08 and V09: memory by address, and import of host pages."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import numpy as np

from zinc_rt.backends.vulkan.memory import ADDRESS_ALIGNMENT
from zinc_rt.probes.outcome import VULKAN, Outcome, check, make_skip, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves
from zinc_rt.probes.vulkan.bench import Address
from zinc_rt.probes.vulkan.context import VulkanProbeContext

WORDS = 1 << 20
FILE_BYTES = 8 << 20


@probe("V08", "addresses", (VULKAN,), hazard=0, needs=("V05",))
@proves(
    "kernels access memory by 64-bit addresses, also if adding an offset carries into the high half",
    passes_when=(
        "the first, a middle and the last word are read and written with offsets from 0 to more than 4 GiB"
    ),
)
@fails(
    symptom("wrong-data"),
    "the driver computes addresses in 32 bits, or memory is not at the reported address",
    "update the driver; report this with --json",
)
def probe_addresses(c: VulkanProbeContext) -> Outcome:
    bench = c.bench
    location, old = bench.words(WORDS), bench.words(1)
    tried = 0
    for word in (0, WORDS // 2, WORDS - 1):
        for offset in (0, 4, (1 << 32) - 4, 1 << 32, (1 << 32) + 4, (1 << 33) - 4):
            location.words[word], value = 0xAB000000 + tried, 0xCD000000 + tried
            base = (location.gpu_va + 4 * word - offset) & (1 << 64) - 1
            index = Address(base)
            bench.run(
                bench.dispatch("probe_store", (index, old, offset & 0xFFFFFFFF, offset >> 32, value), (1, 1, 1))
            )
            where = f"word {word} of {WORDS} by an offset of {offset:#x} from {base:#x}"
            check(old.words[0] == 0xAB000000 + tried, "wrong-data", f"{where}: read {old.words[0]:#x}")
            check(
                location.words[word] == value, "wrong-data", f"{where}: {location.words[word]:#x} after the store"
            )
            location.words[word] = 0
            tried += 1
    check(not location.words.any(), "wrong-data", "a store also changed another word")
    return passed(tried=tried, address=hex(location.gpu_va))


@probe("V09", "import", (VULKAN,), hazard=0, needs=("V08",))
@proves(
    "a file that is mapped read-only can be used as device memory without a copy", passes_when="a kernel reads it"
)
@fails(
    symptom("wrong-data"),
    "the imported pages are not those of the file",
    "report it to the driver's vendor",
)
def probe_host_import(c: VulkanProbeContext) -> Outcome:
    if not c.device.external_memory_host:
        return make_skip("the driver has no VK_EXT_external_memory_host: weights are copied")
    content = np.arange(FILE_BYTES // 4, dtype=np.uint32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mapped"
        path.write_bytes(content.tobytes())
        with path.open("rb") as file:
            mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint32)
        imported = c.bench.memory.import_host_memory(mapped, "a mapped file")
        if imported is None:
            return make_skip("the driver rejects read-only mappings: weights are copied")
        block, offset_bytes = imported
        y, count = c.bench.words(128), FILE_BYTES // 16
        source = Address(block.gpu_va + offset_bytes)
        c.bench.run(c.bench.dispatch("probe_read", (source, y, count, 128), (1, 1, 1)))
        want = content.reshape(-1, 128, 4).sum(axis=(0, 2), dtype=np.uint32)
        wrong = int(np.count_nonzero(y.words != want))
        check(not wrong, "wrong-data", f"{wrong} of 128 sums over the file are wrong")
        return passed(mib=FILE_BYTES >> 20, alignment=ADDRESS_ALIGNMENT)
