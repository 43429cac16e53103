"""The chips a simulated machine can hold: one row each, figures as the drivers report them.

Sources: amdgpu ip discovery and gfx_v11/v12 tables, libhsakmt; VRAM size,
gpu_id and slots of the R9700 from published topology dumps. engine_mhz are the boards' published boost clocks.
What a card told rocjitsu's authors (ROCm/rocm-systems, emulation/rocjitsu/configs/gfx1201_r9700.json) is said so.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.isa.target import TARGETS, Target

GIB = 1 << 30
PAGE_BYTES = 4096
MAX_WAVES_PER_SIMD = 16


@dataclass(frozen=True, slots=True)
class Ip:
    """One block of the discovery table: hardware id, name, version."""

    hw_id: int
    name: str
    version: tuple[int, int, int]
    instances: int = 1
    bases: tuple[int, ...] = ()  # in dwords; same for every instance here


@dataclass(frozen=True, slots=True)
class ChipFirmware:
    """Versions in the format of INFO FW_VERSION."""

    me: int
    pfp: int
    mec: int
    mes: int
    mes_kiq: int
    sdma: int


@dataclass(frozen=True, slots=True)
class Chip:
    """A GPU as the drivers report it."""

    key: str
    name: str  # marketing
    gfx: str  # of a row in isa.target
    target: int  # gfx_target_version: major * 10000 + minor * 100 + step
    device_id: int
    pci_rev: int
    family: int  # AMDGPU_FAMILY_*
    gpu_id: int
    cus: int
    shader_engines: int
    arrays_per_engine: int
    vram_bytes: int
    vram_width_bits: int
    engine_mhz: int
    memory_mhz: int
    vgpr_bytes_per_cu: int  # context save area, kfd_queue.c
    vgpr_bytes_per_cu_old: int  # the same before kernels learnt this chip
    firmware: ChipFirmware
    firmware_minimum: ChipFirmware | None  # for user queues; None: switched off in code (gfx11.5)
    ips: tuple[Ip, ...]
    mec_pipes: int
    l1_kib: int = 32
    l2_kib: int = 8192
    l3_kib: int = 65536
    integrated: bool = False
    sdma_engines: int = 2
    sdma_queues_per_engine: int = 6  # 8 less the two that kfd_device.c keeps back for SDMA 6.0 to 7.0
    cp_queues: int = 0  # num_cp_queues of topology
    capability: int = 0x28A2A280  # bits 13:12, the type of doorbell, are 2 from GC 9.0.1 on: kfd_topology.c
    gb_addr_config: int = 0x444
    sustained_mhz: int = 0  # max_engine_clk_fcompute of topology; 0: the boost clock
    lds_kib: int = 64
    simds_per_cu: int = 2
    scratch_slots_per_cu: int = 32
    location_id: int = 0x300  # bus 3, device 0, function 0
    unique_id: int = 0x5A494E435254

    @property
    def isa(self) -> Target:
        """Return the instruction set and packet generation of the chip."""
        return TARGETS[self.gfx]

    @property
    def major(self) -> int:
        return self.target // 10000

    @property
    def arrays(self) -> int:
        return self.shader_engines * self.arrays_per_engine

    @property
    def simd_count(self) -> int:
        return self.cus * self.simds_per_cu

    @property
    def processors(self) -> tuple[int, ...]:
        """Return HW_ID1 of each workgroup processor (WGP_ID 13:10, SA_ID 16, SE_ID 20:18), in the order in
        which KFD assigns the bit pairs of a CU mask: engines first, then arrays
        (mqd_symmetrically_map_cu_mask)."""
        places = []
        for index in range(self.cus // 2):
            rest, engine = divmod(index, self.shader_engines)
            wgp, array = divmod(rest, self.arrays_per_engine)
            places.append(wgp << 10 | array << 16 | engine << 18)
        return tuple(places)

    @property
    def pci_address(self) -> str:
        bus, rest = self.location_id >> 8, self.location_id & 0xFF
        return f"0000:{bus:02x}:{rest >> 3:02x}.{rest & 7}"

    def compute_cwsr(self, *, old_table: bool = False) -> Cwsr:
        return compute_cwsr_sizes(self.cus, self.vgpr_bytes_per_cu_old if old_table else self.vgpr_bytes_per_cu)


@dataclass(frozen=True, slots=True)
class Cwsr:
    """The size of the context save area, computed like kfd_queue_ctx_save_restore_size in kfd_queue.c."""

    control_stack_bytes: int
    save_restore_bytes: int
    debugger_bytes: int

    def compute_buffer_bytes(self, save_restore_bytes: int) -> int:
        """Return the size of the whole mapping for the save_restore_bytes that a client requested."""
        return round_up(save_restore_bytes + self.debugger_bytes, PAGE_BYTES)


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def compute_cwsr_sizes(cus: int, vgpr_bytes: int) -> Cwsr:
    waves = cus * 32
    per_cu = vgpr_bytes + 0x4000 + 0x10000 + 0x1000  # VGPRs, SGPRs, LDS, hardware registers
    control = round_up(40 + waves * 12 + 8, PAGE_BYTES)
    return Cwsr(control, control + round_up(cus * per_cu, PAGE_BYTES), round_up(waves * 32, 64))


def _make_ips(
    gc: tuple[int, int, int],
    sdma: tuple[int, int, int],
    nbif: tuple[int, int, int],
    hdp: tuple[int, int, int],
    mmhub: tuple[int, int, int],
    osssys: tuple[int, int, int],
    mp: tuple[int, int, int],
) -> tuple[Ip, ...]:
    # hardware ids: soc15_hw_ip.h. Base addresses: the segments every gfx11 and gfx12 board publishes.
    gc_bases = (0x1260, 0xA000, 0x1C000, 0x2402C00)
    return (
        Ip(1, "MP1", mp, bases=(0x16000, 0x243FC00, 0xDC0000, 0xE00000, 0xE40000)),
        Ip(11, "GC", gc, bases=gc_bases),
        Ip(34, "MMHUB", mmhub, bases=(0x1A000, 0x2408800)),
        Ip(40, "OSSSYS", osssys, bases=(0x10A0, 0x240A000)),
        Ip(41, "HDP", hdp, bases=(0xF20, 0x240A400)),
        Ip(42, "SDMA0", sdma, instances=2, bases=gc_bases),
        Ip(108, "NBIF", nbif, bases=(0x0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000)),
        Ip(255, "MP0", mp, bases=(0x16000, 0x243FC00, 0xDC0000, 0xE00000, 0xE40000)),
    )


_GFX12_MINIMUM = ChipFirmware(me=2780, pfp=2840, mec=3050, mes=123, mes_kiq=0, sdma=7966358)  # gfx_v12_0.c
_GFX11_MINIMUM = ChipFirmware(me=2420, pfp=2580, mec=2650, mes=120, mes_kiq=0, sdma=0)  # gfx_v11_0.c
_GFX12_FIRMWARE = ChipFirmware(me=2850, pfp=2890, mec=3100, mes=0x84, mes_kiq=0x6E, sdma=7966616)
# An amdgpu_top dump of a Strix Halo; no version of gfx1150 is public, so that chip has the same here.
_GFX115_FIRMWARE = ChipFirmware(me=32, pfp=50, mec=35, mes=0x88, mes_kiq=0x6F, sdma=18)
_GFX11_FIRMWARE = ChipFirmware(me=2510, pfp=2610, mec=2700, mes=0x80, mes_kiq=0x6C, sdma=24)

_GFX1201_IPS = _make_ips((12, 0, 1), (7, 0, 1), (6, 3, 1), (7, 0, 0), (4, 1, 0), (7, 0, 0), (14, 0, 3))


def _make_gfx12(key: str, name: str, **figures: object) -> Chip:
    row: dict[str, object] = {
        "gfx": "gfx1201",
        "target": 120001,
        "family": 152,
        "vgpr_bytes_per_cu": 0x60000,
        "vgpr_bytes_per_cu_old": 0x60000,
        "firmware": _GFX12_FIRMWARE,
        "firmware_minimum": _GFX12_MINIMUM,
        "ips": _GFX1201_IPS,
        "mec_pipes": 2,
        "arrays_per_engine": 2,
        "shader_engines": 4,
        "vram_width_bits": 256,
        "memory_mhz": 1258,
        "cp_queues": 4,
        "capability": 0x6803A280,  # with launch override and mode, precise ALU
        "gb_addr_config": 0x8200545,
        **figures,
    }
    return Chip(key=key, name=name, **row)  # type: ignore[arg-type]


_CHIPS = (
    _make_gfx12(
        "r9700",
        "AMD Radeon AI PRO R9700",
        device_id=0x7551,
        pci_rev=0xC0,
        gpu_id=56387,
        cus=64,
        vram_bytes=34208743424,
        engine_mhz=2920,
        sustained_mhz=2350,
    ),
    _make_gfx12(
        "rx9070xt",
        "AMD Radeon RX 9070 XT",
        device_id=0x7550,
        pci_rev=0xC0,
        gpu_id=22313,
        cus=64,
        vram_bytes=17095983104,
        engine_mhz=2970,
    ),
    _make_gfx12(
        "rx9070",
        "AMD Radeon RX 9070",
        device_id=0x7550,
        pci_rev=0xC3,
        gpu_id=22314,
        cus=56,
        vram_bytes=17095983104,
        engine_mhz=2520,
    ),
    _make_gfx12(
        "rx9060xt",
        "AMD Radeon RX 9060 XT",
        device_id=0x7590,
        pci_rev=0xC0,
        gfx="gfx1200",
        target=120000,
        gpu_id=30921,
        cus=32,
        shader_engines=2,
        vram_bytes=17095983104,
        vram_width_bits=128,
        engine_mhz=3130,
        l2_kib=4096,
        l3_kib=32768,
        ips=_make_ips((12, 0, 0), (7, 0, 0), (6, 3, 1), (7, 0, 0), (4, 1, 0), (7, 0, 0), (14, 0, 2)),
    ),
    Chip(
        key="rx7900xtx",
        name="AMD Radeon RX 7900 XTX",
        gfx="gfx1100",
        target=110000,
        device_id=0x744C,
        pci_rev=0xC8,
        family=145,
        gpu_id=19122,
        cus=96,
        shader_engines=6,
        arrays_per_engine=2,
        vram_bytes=25753026560,
        vram_width_bits=384,
        engine_mhz=2526,
        memory_mhz=1249,
        vgpr_bytes_per_cu=0x60000,
        vgpr_bytes_per_cu_old=0x60000,
        firmware=_GFX11_FIRMWARE,
        firmware_minimum=_GFX11_MINIMUM,
        ips=_make_ips((11, 0, 0), (6, 0, 0), (4, 3, 0), (6, 0, 0), (3, 0, 0), (6, 0, 0), (13, 0, 0)),
        mec_pipes=4,
        cp_queues=8,
        gb_addr_config=0x545,
        l2_kib=6144,
        l3_kib=98304,
    ),
    Chip(  # IP versions from amdgpu_discovery.c; firmware as Navi 31's, whose minima for user queues it shares
        key="rx7600",
        name="AMD Radeon RX 7600",
        gfx="gfx1102",
        target=110002,
        device_id=0x7480,
        pci_rev=0xCF,
        family=145,
        gpu_id=40151,
        cus=32,
        shader_engines=2,
        arrays_per_engine=2,
        vram_bytes=8 * GIB - (16 << 20),
        vram_width_bits=128,
        engine_mhz=2655,
        memory_mhz=2250,
        vgpr_bytes_per_cu=0x40000,
        vgpr_bytes_per_cu_old=0x40000,
        firmware=_GFX11_FIRMWARE,
        firmware_minimum=_GFX11_MINIMUM,
        ips=_make_ips((11, 0, 2), (6, 0, 2), (4, 3, 0), (6, 0, 0), (3, 0, 2), (6, 0, 0), (13, 0, 7)),
        mec_pipes=4,
        cp_queues=8,
        l2_kib=2048,
        l3_kib=32768,
    ),
    Chip(
        key="strix-point",
        name="AMD Radeon 890M Graphics",
        gfx="gfx1150",
        target=110500,
        device_id=0x150E,
        pci_rev=0xC1,
        family=150,
        gpu_id=33017,
        cus=16,
        shader_engines=1,
        arrays_per_engine=2,
        vram_bytes=GIB // 2,
        vram_width_bits=128,
        engine_mhz=2900,
        memory_mhz=1000,
        vgpr_bytes_per_cu=0x40000,
        vgpr_bytes_per_cu_old=0x40000,
        firmware=_GFX115_FIRMWARE,
        firmware_minimum=None,
        ips=_make_ips((11, 5, 0), (6, 1, 0), (7, 11, 0), (6, 1, 0), (3, 3, 0), (6, 1, 0), (14, 0, 0)),
        mec_pipes=4,
        cp_queues=8,
        l2_kib=2048,
        l3_kib=0,
        integrated=True,
        sdma_engines=1,
        location_id=0xC400,
    ),
    Chip(
        key="strix-halo",
        name="AMD Radeon 8060S",
        gfx="gfx1151",
        target=110501,
        device_id=0x1586,
        pci_rev=0xC1,
        family=150,
        gpu_id=51027,
        cus=40,
        shader_engines=2,
        arrays_per_engine=2,
        vram_bytes=GIB // 2,
        vram_width_bits=256,
        engine_mhz=2900,
        memory_mhz=1000,
        vgpr_bytes_per_cu=0x60000,
        vgpr_bytes_per_cu_old=0x40000,
        firmware=_GFX115_FIRMWARE,
        firmware_minimum=None,
        ips=_make_ips((11, 5, 1), (6, 1, 1), (7, 11, 1), (6, 1, 1), (3, 3, 1), (6, 1, 1), (14, 0, 1)),
        mec_pipes=4,
        cp_queues=8,
        l2_kib=2048,
        l3_kib=32768,
        integrated=True,
        sdma_engines=1,
        location_id=0xC100,
    ),
)
CHIPS: dict[str, Chip] = {row.key: row for row in _CHIPS}

ALIASES = {
    "gfx1201": "r9700",
    "gfx1200": "rx9060xt",
    "gfx1100": "rx7900xtx",
    "gfx1102": "rx7600",
    "gfx1150": "strix-point",
    "gfx1151": "strix-halo",
}


def find_chip(name: str) -> Chip:
    """Return the chip with that row name or gfx name."""
    key = ALIASES.get(name, name)
    if key not in CHIPS:
        raise ValueError(f"unknown chip {name!r}; available: {', '.join([*CHIPS, *ALIASES])}")
    return CHIPS[key]
