"""The text files, chip by chip and kernel by kernel."""

from __future__ import annotations

import errno
import os

import pytest
from sim.device import open_machine

from zinc_rt.sim.chips import CHIPS
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.memory.buffers import Heap
from zinc_rt.sim.profiles import LINUX_VERSIONS
from zinc_rt.sim.sensors import make_sensor_files

NODE = "/sys/devices/virtual/kfd/kfd/topology/nodes/1"
# reference table: control stack, save area, debugger bytes, whole buffer
CWSR = {
    "r9700": (0x7000, 0x1D47000, 0x10000, 0x1D57000),
    "rx9070": (0x6000, 0x199E000, 0xE000, 0x19AC000),
    "rx9060xt": (0x4000, 0xEA4000, 0x8000, 0xEAC000),
    "rx7900xtx": (0xA000, 0x2BEA000, 0x18000, 0x2C02000),
    "rx7600": (0x4000, 0xAA4000, 0x8000, 0xAAC000),
    "strix-point": (0x2000, 0x552000, 0x4000, 0x556000),
    "strix-halo": (0x4000, 0x124C000, 0xA000, 0x1256000),
}


def parse_properties(text: bytes) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.decode().splitlines())


@pytest.mark.parametrize("chip", CWSR)
def test_context_save_area_size_matches_the_kernel(chip: str) -> None:
    sizes = CHIPS[chip].compute_cwsr()
    save = sizes.save_restore_bytes
    shown = (sizes.control_stack_bytes, save, sizes.debugger_bytes, sizes.compute_buffer_bytes(save))
    assert shown == CWSR[chip]


def test_gfx1151_save_area_differs_between_kernels() -> None:
    for linux, save in (("6.17", 0xD4C000), ("7.0", 0x124C000)):
        with open_machine(chip="gfx1151", linux=linux) as owner:
            from zinc_rt.sim.driver.kfd_queues import compute_node_cwsr

            assert compute_node_cwsr(owner.gpus[0]).save_restore_bytes == save


@pytest.mark.parametrize(("linux", "heap"), [("6.8", Heap.VRAM), ("6.18", Heap.GTT)])
def test_kfd_shows_system_memory_as_that_of_an_apu(linux: str, heap: Heap) -> None:
    with open_machine(chip="strix-halo", linux=linux) as owner:
        bank = parse_properties(owner.tree.read(f"{NODE}/mem_banks/0/properties"))
        assert int(bank["size_in_bytes"]) == owner.gpus[0].memory.limit[heap] and bank["heap_type"] == "1"


@pytest.mark.parametrize("linux", LINUX_VERSIONS)
@pytest.mark.parametrize("chip", CHIPS)
def test_node_properties_match_the_kernel(chip: str, linux: str) -> None:
    with open_machine(chip=chip, linux=linux) as owner:
        row, gpu = CHIPS[chip], owner.gpus[0]
        seen = parse_properties(owner.tree.read(f"{NODE}/properties"))
        assert int(seen["simd_count"]) == 2 * row.cus
        assert int(seen["gfx_target_version"]) == row.target
        assert int(seen["capability"]) >> 12 & 3 == 2  # type of doorbell: kfd_topology.c, every GC from 9.0.1
        assert seen["num_sdma_queues_per_engine"] == "6"
        assert int(seen["array_count"]) // int(seen["simd_arrays_per_engine"]) == row.shader_engines
        assert f"renderD{seen['drm_render_minor']}" in owner.tree.names("/dev/dri")
        assert ("cwsr_size" in seen) == gpu.linux.cwsr_in_sysfs
        link = parse_properties(owner.tree.read(f"{NODE}/io_links/0/properties"))
        assert ("recommended_sdma_engine_id_mask" in link) == (linux != "6.8")
        assert owner.tree.read(f"{NODE}/gpu_id") == f"{gpu.gpu_id}\n".encode()
        assert owner.tree.read("/proc/sys/kernel/osrelease").decode().strip() == gpu.linux.release


def test_class_link_matches_node_and_cpu_node_has_no_gpu() -> None:
    with open_machine() as owner:
        link = NODE.replace("/sys/devices/virtual", "/sys/class")
        assert owner.tree.read(f"{NODE}/properties") == owner.tree.read(f"{link}/properties")
        assert owner.tree.read(NODE[:-1] + "0/gpu_id") == b"0\n"


def test_discovery_table_matches_the_kernel() -> None:
    with open_machine() as owner:
        die = "/sys/class/drm/renderD128/device/ip_discovery/die/0"
        assert {"11", "42", "GC", "SDMA0", "NBIF"} <= set(owner.tree.names(die))
        version = [owner.tree.read(f"{die}/11/0/{name}") for name in ("major", "minor", "revision")]
        assert version == [b"12\n", b"0\n", b"1\n"]
        assert owner.tree.read(f"{die}/GC/0/base_addr").splitlines()[0] == b"0x00001260"


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/sys/nothing", errno.ENOENT),
        (NODE, errno.EISDIR),
        ("/dev/dri/renderD200", errno.ENOENT),
        ("", errno.EISDIR),
    ],
)
def test_missing_files_give_the_expected_errno(path: str, number: int) -> None:
    with open_machine() as owner, pytest.raises(OSError) as caught:
        owner.tree.read(path)
    assert caught.value.errno == number


def test_directories_and_files_open_as_in_the_kernel() -> None:
    """Runtimes open a folder, list it by its fd's path, and ask for more only then."""
    nodes = NODE.rpartition("/")[0]
    with open_machine() as owner:
        driver = SimDriver(owner)
        for path in (nodes, "/dev/dri", "/sys/class/drm/renderD128/device/ip_discovery/die/0"):
            fd = driver.open(path, os.O_RDONLY | os.O_DIRECTORY)
            assert driver.open_fds[fd] == path
            with pytest.raises(OSError) as caught:
                driver.mmap(fd, 4096, 0, 3)
            assert caught.value.errno == errno.ENODEV
            driver.close(fd)
        driver.close(driver.open(f"{NODE}/properties", os.O_RDONLY))
        refused = [
            (nodes, os.O_RDWR, errno.EISDIR),
            (f"{NODE}/properties", os.O_RDWR, errno.EACCES),
            (f"{NODE}/properties", os.O_DIRECTORY, errno.ENOTDIR),
            ("/dev/dri/renderD200", os.O_RDWR, errno.ENOENT),
            ("/dev/nothing", os.O_RDONLY, errno.ENOENT),
        ]
        for path, flags, number in refused:
            with pytest.raises(OSError) as caught:
                driver.open(path, flags)
            assert caught.value.errno == number, path


def test_hidden_gpu_is_denied_at_read_and_not_at_open() -> None:
    with open_machine("hidden-gpu") as owner:
        driver = SimDriver(owner)
        driver.close(driver.open(f"{NODE}/gpu_id", os.O_RDONLY))
        with pytest.raises(OSError) as caught:
            driver.read_file(f"{NODE}/gpu_id")
        assert caught.value.errno == errno.EPERM


def test_listing_a_file_or_missing_path_is_an_error() -> None:
    with open_machine() as owner:
        for path, number in ((f"{NODE}/gpu_id", errno.ENOTDIR), ("/sys/nothing", errno.ENOENT)):
            with pytest.raises(OSError) as caught:
                owner.tree.names(path)
            assert caught.value.errno == number


def test_r9700_properties_match_a_real_card() -> None:
    """rocjitsu's configs/gfx1201_r9700.json, written from a card, and its GET_TILE_CONFIG."""
    message = {"capability": 0x6803A280, "num_cp_queues": 4, "max_engine_clk_fcompute": 2350, "simd_count": 128,
            "max_slots_scratch_cu": 32, "debug_prop": 1495, "num_sdma_engines": 2}  # fmt: skip
    with open_machine(chip="r9700") as owner:
        seen = parse_properties(owner.tree.read(f"{NODE}/properties"))
        assert {name: int(seen[name]) for name in message} == message
        assert owner.gpus[0].chip.gb_addr_config == 0x8200545


def test_ecc_memory_is_the_alternative_value_of_a_row() -> None:
    """2 GiB, 1/16 of 32, keep the check bits."""
    sizes = []
    for flip in ((), ("chip/r9700/vram_bytes",)):
        with open_machine(chip="r9700", flip=flip) as owner:
            bank = parse_properties(owner.tree.read(f"{NODE}/mem_banks/0/properties"))
            sizes.append(int(bank["size_in_bytes"]))
    assert sizes == [34208743424, 32061259776] and sizes[0] - sizes[1] == 2 << 30


def test_sensors_follow_the_load_in_virtual_time() -> None:
    with open_machine(chip="r9700") as owner:
        gpu, files = owner.gpus[0], make_sensor_files(owner.gpus[0])

        def read(name: str) -> int:
            text = files[f"hwmon/hwmon3/{name}"]
            return int(text() if callable(text) else text)

        idle, clocks, heats = read("temp2_input"), [read("freq1_input")], []
        for _ in range(6):
            gpu.doorbell_count += 8
            heats.append(read("temp2_input"))
            clocks.append(read("freq1_input"))
        assert idle < heats[0] < heats[1] <= heats[-1] and heats[-1] - heats[-2] < heats[1] - heats[0]
        assert clocks[0] < 100_000_000 and clocks[1] > clocks[-1] > 0.9 * clocks[1]
        rest = [read("temp2_input") for _ in range(6)]
        assert rest == sorted(rest, reverse=True) and idle <= rest[-1] < heats[-1]
        assert read("freq1_input") == clocks[0]
