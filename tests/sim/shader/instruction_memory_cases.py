"""Which forms of each memory instruction are run: SMEM, GLOBAL, FLAT, SCRATCH, VBUFFER and DS."""

from __future__ import annotations

from instruction_kernels import LDS_DATA_BYTES, SECTION_BYTES, KernelWriter

LOADS = {
    "u8": 1, "i8": 1, "u16": 1, "i16": 1, "b32": 1, "b64": 2, "b96": 3, "b128": 4, "d16_b16": 1, "d16_hi_b16": 1,
    "d16_u8": 1, "d16_i8": 1, "d16_hi_u8": 1, "d16_hi_i8": 1,
}  # fmt: skip
STORES = {"b8": 1, "b16": 1, "b32": 1, "b64": 2, "b96": 3, "b128": 4, "d16_hi_b16": 1, "d16_hi_b8": 1}
ATOMICS = {
    **dict.fromkeys(
        ("add_u32", "max_u32", "min_u32", "cmpswap_b32", "swap_b32", "or_b32", "add_f32", "sub_u32"), 1
    ),
    **dict.fromkeys(("min_i32", "max_i32", "and_b32", "xor_b32", "inc_u32", "dec_u32"), 1),
    **dict.fromkeys(("max_u64", "add_u64", "swap_b64", "cmpswap_b64"), 2),
}
WIDE = {1: "v4", 2: "v[4:5]", 3: "v[4:6]", 4: "v[4:7]"}


class MemorySections:
    """Separate memory for the stores of each case."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count, self.taken = first, count, 0

    def take_section(self) -> int:
        if self.taken == self.count:
            raise SystemExit(f"the fire test needs more than {self.count} sections")
        self.taken += 1
        return self.first + (self.taken - 1) * SECTION_BYTES


def add_memory_cases(writer: KernelWriter) -> None:
    region = MemorySections(0, 128)
    lds = MemorySections(LDS_DATA_BYTES, 40)
    add_global_loads(writer)
    add_transposed_loads(writer)
    add_global_stores(writer, region)
    add_global_atomics(writer, region)
    add_scratch_cases(writer)
    add_buffer_cases(writer, region)
    add_scalar_loads(writer)
    add_lds_loads(writer)
    add_lds_stores(writer, lds)
    add_lds_atomics(writer, lds)
    add_lds_lane_cases(writer)


def add_load(writer: KernelWriter, name: str, operands: str, size: int) -> None:
    counter = "s_wait_dscnt 0" if name.startswith("ds_") else "s_wait_loadcnt 0"
    waits = [counter, "s_wait_dscnt 0"] if name.startswith("flat") else [counter]
    writer.vector(name, f"{name} {{d}}, {operands}", size=size, after=waits)


def add_global_loads(writer: KernelWriter) -> None:
    for kind, size in LOADS.items():
        add_load(writer, f"global_load_{kind}", "v242, s[92:93]", size)
        add_load(writer, f"global_load_{kind}", "v243, s[92:93] offset:5", size)
        add_load(writer, f"global_load_{kind}", "v[244:245], off offset:16", size)
        add_load(writer, f"flat_load_{kind}", "v[244:245] offset:1024", size)
    for name in ("wb", "inv", "wbinv"):
        writer.vector(f"global_{name}", f"global_{name}")
    add_load(writer, "global_load_b32", "v240, s[92:93] th:TH_LOAD_NT scope:SCOPE_SYS", 1)
    add_load(writer, "global_load_b128", "v240, s[92:93] offset:32", 4)  # lanes side by side


def add_transposed_loads(writer: KernelWriter) -> None:
    """Their EXEC must be all ones."""
    for name, size in (("global_load_tr_b64", 2), ("global_load_tr_b128", 4)):
        size = size if writer.wave == 32 else size // 2
        for form in ("v242, s[92:93]", "v243, s[92:93] offset:5", "v[244:245], off offset:16"):
            writer.vector(name, f"{name} {{d}}, {form}", size=size, after=["s_wait_loadcnt 0"], full=True)


def add_global_stores(writer: KernelWriter, region: MemorySections) -> None:
    for kind, size in STORES.items():
        for form in (
            f"global_store_{kind} v241, {WIDE[size]}, s[94:95] offset:{region.take_section()}",
            f"global_store_{kind} v[246:247], {WIDE[size]}, off offset:{region.take_section()}",
            f"flat_store_{kind} v[246:247], {WIDE[size]} offset:{region.take_section() + 3}",
        ):
            writer.vector(form.split()[0], form, after=["s_wait_storecnt_dscnt 0"])


def add_global_atomics(writer: KernelWriter, region: MemorySections) -> None:
    for kind, size in ATOMICS.items():
        values = {1: "v4", 2: "v[4:5]"}[size]
        if kind.startswith("cmpswap"):
            values = {1: "v[4:5]", 2: "v[4:7]"}[size]
        start = [f"global_store_b64 v241, v[6:7], s[94:95] offset:{region.take_section()}", "s_wait_storecnt 0"]
        offset = start[0].split("offset:")[1]
        name = f"global_atomic_{kind}"
        if kind == "add_f32":
            start[0] = start[0].replace("v[6:7]", "v[2:3]")
            values = "v1"
        read = f"global_load_b64 {{d}}, v241, s[94:95] offset:{offset}"
        how = "f32" if kind == "add_f32" else "bits"
        writer.vector(
            name,
            f"{name} v241, {values}, s[94:95] offset:{offset}",
            size=2,
            before=start,
            compare=how,
            after=["s_wait_storecnt 0", read, "s_wait_loadcnt 0"],
        )
        writer.vector(
            name,
            f"{name} {{d}}, v[246:247], {values}, off offset:{offset} th:TH_ATOMIC_RETURN",
            size=size,
            before=start,
            compare=how,
            after=["s_wait_loadcnt 0"],
        )
        if kind.startswith(("add_u", "or_", "max_", "min_", "and_", "xor_", "sub_")):  # any order gives the same
            offset = str(region.take_section())
            start = [f"global_store_b64 v241, v[6:7], s[94:95] offset:{offset}", "s_wait_storecnt 0"]
            read = f"global_load_b64 {{d}}, v248, s[94:95] offset:{offset}"
            writer.vector(
                name,
                f"{name} v248, {values}, s[94:95] offset:{offset}",
                size=2,
                before=start,
                after=["s_wait_storecnt 0", read, "s_wait_loadcnt 0"],
            )


def add_scratch_cases(writer: KernelWriter) -> None:
    for kind, size in (("b32", 1), ("b128", 4), ("b8", 1), ("b16", 1), ("b64", 2), ("b96", 3)):
        load = {"b8": "u8", "b16": "i16"}.get(kind, kind)
        clear = [f"scratch_store_b128 off, v[12:15], off offset:{16 * i}" for i in range(2)]
        for address in (
            "v240, {}, off offset:8",
            "off, {}, s40 offset:4",
            "off, {}, off offset:12",
            "v240, {}, s40",
        ):
            store = f"scratch_store_{kind} {address.format(WIDE[size])}"
            back = f"scratch_load_{load} {{d}}, " + address.replace("{}, ", "")
            base = [
                "s_mov_b32 s40, 16",
                *clear,
                f"scratch_store_b128 {address.format('v[12:15]')}",
                "s_wait_storecnt 0",
            ]
            after = ["s_wait_storecnt 0", "s_mov_b32 s40, 16", back, "s_wait_loadcnt 0"]
            writer.vector(f"scratch_store_{kind}", store, size=size, before=base, after=after)
            text = f"scratch_store_{kind} {address.format(WIDE[size])}"
            load_text = f"scratch_load_{load} {{d}}, " + address.replace("{}, ", "")
            writer.vector(
                f"scratch_load_{load}",
                load_text,
                size=size,
                after=["s_wait_loadcnt 0"],
                before=["s_mov_b32 s40, 16", text, "s_wait_storecnt 0"],
            )


def add_buffer_cases(writer: KernelWriter, region: MemorySections) -> None:
    for kind, size in (("b32", 1), ("b128", 4), ("u16", 1), ("b64", 2), ("u8", 1), ("i8", 1), ("b96", 3)):
        name = f"buffer_load_{kind}"
        for form in (
            "v242, s[64:67], null offen",
            "off, s[64:67], s40 offset:12",
            "v242, s[64:67], s40 offen offset:20",
            "v243, s[64:67], null offen offset:2984",
        ):
            writer.vector(
                name, f"{name} {{d}}, {form}", size=size, before=["s_mov_b32 s40, 32"], after=["s_wait_loadcnt 0"]
            )
    for kind, size in (("b32", 1), ("b128", 4), ("b8", 1), ("b64", 2)):
        name = f"buffer_store_{kind}"
        for form in ("v241, s[68:71], s40 offen", "v241, s[68:71], s40 offen offset:2990"):
            index = region.take_section()
            moved = [
                f"s_add_co_u32 s68, s94, {index}",
                "s_add_co_ci_u32 s69, s95, 0",
                "s_and_b32 s69, s69, 0xffff",
            ]
            text = f"{name} {WIDE[size]}, {form}"
            writer.vector(name, text, before=["s_mov_b32 s40, 0", *moved], after=["s_wait_storecnt 0"])


def add_scalar_loads(writer: KernelWriter) -> None:
    widths = {"b32": 1, "b64": 2, "b96": 3, "b128": 4, "b256": 8, "b512": 16, "u8": 1, "i8": 1, "u16": 1, "i16": 1}
    for stem, base in (("s_load", "s[92:93]"), ("s_buffer_load", "s[64:67]")):
        for kind, count in widths.items():
            to = "s72" if count == 1 else f"s[72:{71 + count}]"
            saved = tuple(f"s{72 + i}" for i in range(count))
            for offset in ("0x47", "s40 offset:0x22", "m0" if stem == "s_load" else "0xba4"):
                name = f"{stem}_{kind}"
                text = f"{name} {to}, {base}, {offset}\ns_wait_kmcnt 0"
                writer.scalar(name, text, before=["s_mov_b32 s40, 0x135", "s_mov_b32 m0, 0x64"], saved=saved)


def add_lds_loads(writer: KernelWriter) -> None:
    for kind, size in LOADS.items():
        if kind.startswith("d16"):
            hi = "_hi" if "hi" in kind else ""
            kind = f"{kind[-2:] if kind[-2:] != '16' else 'u16'}_d16{hi}"
        name = f"ds_load_{kind}"
        add_load(writer, name, "v242", size)
        add_load(writer, name, "v240 offset:64", size)
        if size == 1:
            add_load(writer, name, "v242 offset:4" if "b32" in kind else "v242 offset:6", size)
    for kind, size in (("2addr_b32", 2), ("2addr_b64", 4), ("2addr_stride64_b32", 2), ("2addr_stride64_b64", 4)):
        add_load(writer, f"ds_load_{kind}", "v242 offset0:3 offset1:1", size)
        add_load(writer, f"ds_load_{kind}", "v240 offset1:4", size)


def add_lds_stores(writer: KernelWriter, lds: MemorySections) -> None:
    for kind, size in (
        ("b8", 1),
        ("b16", 1),
        ("b32", 1),
        ("b64", 2),
        ("b96", 3),
        ("b128", 4),
        ("b8_d16_hi", 1),
        ("b16_d16_hi", 1),
    ):
        for offset in (0, 8 if size < 3 else 0):
            index = lds.take_section()
            fill = [f"ds_store_b128 v240, v[12:15] offset:{index}", "s_wait_dscnt 0"]
            read = ["s_wait_dscnt 0", f"ds_load_b128 {{d}}, v240 offset:{index}", "s_wait_dscnt 0"]
            name = f"ds_store_{kind}"
            writer.vector(
                name, f"{name} v241, {WIDE[size]} offset:{index + offset}", size=4, before=fill, after=read
            )
    for kind, first, second in (("2addr_b32", "v4", "v5"), ("2addr_b64", "v[4:5]", "v[6:7]")):
        index = lds.take_section()
        moved = [
            f"v_add_nc_u32 v249, {index}, v241",
            f"ds_store_b128 v240, v[12:15] offset:{index}",
            "s_wait_dscnt 0",
        ]
        read = ["s_wait_dscnt 0", f"ds_load_b128 {{d}}, v240 offset:{index}", "s_wait_dscnt 0"]
        name = f"ds_store_{kind}"
        offsets = "offset0:1 offset1:3" if kind == "2addr_b32" else "offset1:1"
        writer.vector(name, f"{name} v249, {first}, {second} {offsets}", size=4, before=moved, after=read)


def add_lds_atomics(writer: KernelWriter, lds: MemorySections) -> None:
    kinds = {
        "add_u32": 1, "max_u32": 1, "min_u32": 1, "add_f32": 1, "sub_u32": 1, "or_b32": 1, "and_b32": 1,
        "max_i32": 1, "inc_u32": 1, "dec_u32": 1, "add_u64": 2,
    }  # fmt: skip
    index = lds.take_section()
    for kind, size in kinds.items():
        values = "v1" if kind == "add_f32" else WIDE[size]
        old = "v[2:3]" if kind == "add_f32" else "v[6:7]"
        start = [f"ds_store_b64 v241, {old} offset:{index}", "s_wait_dscnt 0"]
        read = ["s_wait_dscnt 0", f"ds_load_b64 {{d}}, v241 offset:{index}", "s_wait_dscnt 0"]
        how = "f32" if kind == "add_f32" else "bits"
        writer.vector(
            f"ds_{kind}", f"ds_{kind} v241, {values} offset:{index}", size=2, before=start, after=read, compare=how
        )
        stem, bits = kind[:-4], kind[-3:]
        name = f"ds_{stem}_rtn_{bits}"
        writer.vector(
            name,
            f"{name} {{d}}, v241, {values} offset:{index}",
            size=size,
            before=start,
            after=["s_wait_dscnt 0"],
            compare=how,
        )
        if kind not in ("add_f32", "inc_u32", "dec_u32"):
            start = [f"ds_store_b128 v240, v[4:7] offset:{index}", "s_wait_dscnt 0"]
            read = ["s_wait_dscnt 0", f"ds_load_b64 {{d}}, v248 offset:{index}", "s_wait_dscnt 0"]
            writer.vector(
                f"ds_{kind}", f"ds_{kind} v248, {values} offset:{index}", size=2, before=start, after=read
            )
    for kind, values in (("storexchg_rtn_b32", "v4"), ("cmpstore_rtn_b32", "v4, v5")):
        start = [f"ds_store_b64 v241, v[6:7] offset:{index}", "s_wait_dscnt 0"]
        writer.vector(
            f"ds_{kind}", f"ds_{kind} {{d}}, v241, {values} offset:{index}", before=start, after=["s_wait_dscnt 0"]
        )


def add_lds_lane_cases(writer: KernelWriter) -> None:
    wait = ["s_wait_dscnt 0"]
    for pattern in (
        "0x8000", "0x80e4", "0x801b", "0x041f", "0x401f", "0x7c1f", "0x0018", "0x00e7", "0x1ce3", "0xe000",
        "0xe010",
        "0xe01f", "0xc020", "0xc420", "0xc061", "0xc5c7",
    ):  # fmt: skip
        writer.vector("ds_swizzle_b32", f"ds_swizzle_b32 {{d}}, v4 offset:{pattern}", after=wait)
    scaled = ["v_lshlrev_b32 v249, 2, v19"]
    for name in ("ds_bpermute_b32", "ds_bpermute_fi_b32"):
        for offset in (0, 4, 64):
            writer.vector(name, f"{name} {{d}}, v249, v4 offset:{offset}", before=scaled, after=wait)
    writer.vector(
        "ds_permute_b32", "ds_permute_b32 {d}, v249, v4", before=["v_lshrrev_b32 v249, 2, v241"], after=wait
    )
    writer.vector("ds_permute_b32", "ds_permute_b32 {d}, v249, v5 offset:12", before=scaled, after=wait)
    writer.vector("ds_nop", "ds_nop")
