"""Constructs that kernels must avoid because drivers may compute other bits for them, or devices may lack them.

    for remark in lint(read(data)): print(remark)        # a rule, an instruction, what to do

docs/spirv.md documents the freedom of drivers for every rule. Nothing here needs a driver or a compiler.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.spirv.build import NO_CONTRACTION
from zinc_rt.spirv.module import SpirvModule, decode_text
from zinc_rt.spirv.opcodes import ROUNDED, Opcode, find_opcode_name
from zinc_rt.spirv.private_arrays import find_private_arrays
from zinc_rt.spirv.remark import Remark, find_function, place
from zinc_rt.spirv.uniformity import find_barriers

# Numbers of the SPIR-V registry's spirv.h.
CAPABILITIES = {1: "Shader", 11: "Int64", 5347: "PhysicalStorageBufferAddresses"}
EXTENSIONS = frozenset({"SPV_KHR_physical_storage_buffer"})
SET = "GLSL.std.450"
EXTENDED = {  # instructions of that set, all on integers and therefore exact
    5: "SAbs", 7: "SSign", 38: "UMin", 39: "SMin", 41: "UMax", 42: "SMax", 44: "UClamp", 45: "SClamp",
    73: "FindILsb", 74: "FindSMsb", 75: "FindUMsb",
}  # fmt: skip
SQRT = 31
SEEDS = {"division": "fdiv_", "square root": "fsqrt_"}  # the only function of canonical.glsl that may contain it
_INSTEAD = {  # of GLSL.std.450: the replacement in a kernel
    1: "frint_", 2: "frint_", 13: "sin by a table", 14: "cos by a table", 21: "ftanh_", 26: "fexp_",
    27: "fexp_", 28: "flog_", 29: "fexp_", 30: "flog_", 31: "fsqrt_", 32: "frsqrt_", 37: "fmin_", 40: "fmax_",
    43: "fmin_ and fmax_", 50: "a product and a sum", 62: "half_to_float", 79: "fmin_", 80: "fmax_",
    81: "fmin_ and fmax_",
}  # fmt: skip
BUILT_INS = {25: "WorkgroupSize", 26: "WorkgroupId", 27: "LocalInvocationId", 28: "GlobalInvocationId",
            29: "LocalInvocationIndex"}  # fmt: skip
INVOCATIONS, SHARED_BYTES = 128, 16384  # limits that every Vulkan 1.2 device supports
_LOCAL_SIZE = 17  # an execution mode
_BUILT_IN, _BINDING, _DESCRIPTOR_SET = 11, 33, 34  # decorations
STORAGE = {  # classes
    1: "Input", 4: "Workgroup", 6: "Private", 7: "Function", 9: "PushConstant", 5349: "PhysicalStorageBuffer",
}  # fmt: skip
_WORKGROUP = 4
_EQUALITIES = (Opcode.FOrdEqual, Opcode.FUnordEqual, Opcode.FOrdNotEqual, Opcode.FUnordNotEqual)


def lint_module(module: SpirvModule) -> tuple[Remark, ...]:
    """Return remarks in the order of the rules below; none for a kernel with the same results on every driver."""
    return tuple(remark for rule in RULES.values() for remark in rule(module))


def _check_opcodes(module: SpirvModule) -> Iterator[Remark]:
    known = frozenset(Opcode)
    for instruction in module.instructions:
        if instruction.opcode not in known:
            what = _KINDS.get(instruction.opcode) or _find_kind(instruction.opcode)
            yield Remark(
                "opcode", place(module, instruction), f"{what} is not allowed in a kernel", _ADVICE.get(what, _ASK)
            )


def _find_kind(opcode: int) -> str:
    ranges = {range(227, 243): "an atomic", range(333, 367): "a group operation", range(86, 108): "an image"}
    return next((kind for numbers, kind in ranges.items() if opcode in numbers), find_opcode_name(opcode))


_KINDS = {  # rejected opcodes that a kernel author may use
    140: "OpFRem", 141: "OpFMod", 115: "OpFConvert", 116: "OpQuantizeToF16", 148: "OpDot", 156: "OpIsNan",
    157: "OpIsInf", 6035: "an atomic", 143: "OpMatrixTimesScalar", 144: "OpVectorTimesMatrix",
    145: "OpMatrixTimesVector", 146: "OpMatrixTimesMatrix",
}  # fmt: skip
_ASK = "use the opcodes in spirv/opcodes.py, or show that this one is exact and add it there"
_ADVICE = {
    "an atomic": "atomics have no fixed order: let one invocation compute each result, and sum in a fixed tree",
    "a group operation": "subgroups have 8 to 64 lanes: exchange values in shared memory (put_sum, sum_of)",
    "OpDot": "its summation order is unspecified: write the products and the sum",
    "OpIsNan": "drivers may fold it without SignedZeroInfNanPreserve: use is_nan(), which tests the bits",
    "OpIsInf": "drivers may fold it without SignedZeroInfNanPreserve: test the bits",
    "OpFConvert": "use half_to_float(), which is exact",
}


def _check_capabilities(module: SpirvModule) -> Iterator[Remark]:
    for item in module.of(Opcode.Capability):
        if item.operands[0] not in CAPABILITIES:
            allowed = ", ".join(CAPABILITIES.values())
            message = f"capability {item.operands[0]}: expected one of {allowed}"
            advice = "load 32-bit words and extract the parts; the loader adds float modes"
            yield Remark("capability", place(module, item), message, advice)
    for item in module.of(Opcode.Extension):
        if decode_text(item.operands) not in EXTENSIONS:
            yield Remark("capability", place(module, item), f"extension {decode_text(item.operands)}", _ASK)


def _check_contraction(module: SpirvModule) -> Iterator[Remark]:
    have = module.find_decorated(NO_CONTRACTION)
    for item in module.of(*ROUNDED):
        if item.operands[1] not in have:
            message = "lacks NoContraction: a driver may fuse or reorder it"
            yield Remark(
                "no-contraction",
                place(module, item),
                message,
                "compile it with zinc-rt vulkan compile, which adds the decoration",
            )


def _check_extended(module: SpirvModule) -> Iterator[Remark]:
    sets = {item.operands[0]: decode_text(item.operands[1:]) for item in module.of(Opcode.ExtInstImport)}
    for item in module.of(Opcode.ExtInst):
        which, number = item.operands[2], item.operands[3]
        if sets.get(which) != SET:
            yield Remark("ext-inst", place(module, item), f"instruction of {sets.get(which)}, not of {SET}", _ASK)
        elif number == SQRT and find_function(module, item.at) == SEEDS["square root"]:
            continue
        elif number not in EXTENDED:
            message = f"{SET} {number} is not exact, or its results for NaN and zeros are unspecified"
            instead = _INSTEAD.get(number)
            yield Remark("ext-inst", place(module, item), message, f"use {instead}" if instead else _ASK)


def _check_division(module: SpirvModule) -> Iterator[Remark]:
    for item in module.of(Opcode.FDiv):
        if find_function(module, item.at) != SEEDS["division"]:
            message = "Vulkan guarantees only 2.5 ULP for a division"
            yield Remark("division", place(module, item), message, "use fdiv_, which is correctly rounded")


def _check_nan_compares(module: SpirvModule) -> Iterator[Remark]:
    for item in module.of(*_EQUALITIES):
        left, right = (_find_source(module, id) for id in item.inputs)
        if left == right:
            message = "compares a value with itself: drivers may fold it without SignedZeroInfNanPreserve"
            yield Remark("nan-compare", place(module, item), message, "use is_nan(), which tests the bits")


def _find_source(module: SpirvModule, id: int) -> tuple[int, ...]:
    """Return the definition of a value; loads of one variable have the same definition."""
    definition = module.definitions.get(id)
    return (
        (definition.opcode, definition.inputs[0])
        if definition is not None and definition.opcode == Opcode.Load
        else (id,)
    )


def _check_folded_constants(module: SpirvModule) -> Iterator[Remark]:
    """Report x + 0, x - 0, 0 - x, x * 0, x * 1, x - x, which a driver may fold without regard to -0, NaN or
    infinity."""
    advice = "use the value itself, or start the sum with its first product and end it with no_minus_zero"
    for item in module.of(Opcode.FAdd, Opcode.FSub, Opcode.FMul, Opcode.VectorTimesScalar):
        foldable = {0.0} if item.opcode in (Opcode.FAdd, Opcode.FSub) else {0.0, 1.0}
        constants = {value for id in item.inputs if (value := _find_float(module, id)) in foldable}
        for value in sorted(value for value in constants if value is not None):
            yield Remark("folded-operand", place(module, item), f"drivers may fold the operand {value:g}", advice)
        if item.opcode == Opcode.FSub and _find_source(module, item.inputs[0]) == _find_source(
            module, item.inputs[1]
        ):
            yield Remark(
                "folded-operand", place(module, item), "drivers may fold x - x to 0 even if x is NaN", advice
            )


def _find_float(module: SpirvModule, id: int) -> float | None:
    """Return the magnitude of a float constant or of a vector of equal constants; None for anything else."""
    definition = module.definitions.get(id)
    if definition is None:
        return None
    if definition.opcode == Opcode.ConstantNull:
        return 0.0
    if definition.opcode == Opcode.ConstantComposite:
        parts = {_find_float(module, part) for part in definition.inputs}
        return parts.pop() if len(parts) == 1 else None
    if (
        definition.opcode != Opcode.Constant
        or module.definitions[definition.operands[0]].opcode != Opcode.TypeFloat
    ):
        return None
    return {0: 0.0, 0x3F800000: 1.0}.get(definition.inputs[0] & 0x7FFFFFFF)


def _check_descriptors(module: SpirvModule) -> Iterator[Remark]:
    """Report interfaces other than one push constant with an address: nothing may require descriptors."""
    advice = "pass buffers by address: KERNARG(...)"
    for item in module.of(Opcode.Variable):
        if item.operands[2] not in STORAGE:
            message = f"storage class {item.operands[2]}: expected one of {', '.join(STORAGE.values())}"
            yield Remark("descriptor", place(module, item), message, advice)
    for item in module.of(Opcode.Decorate):
        if item.operands[1] in (_BINDING, _DESCRIPTOR_SET):
            yield Remark("descriptor", place(module, item), "a descriptor binding is not allowed", advice)


def _check_built_ins(module: SpirvModule) -> Iterator[Remark]:
    for item in module.of(Opcode.Decorate):
        if item.operands[1] == _BUILT_IN and item.operands[2] not in BUILT_INS:
            message = f"built-in {item.operands[2]}: expected one of {', '.join(BUILT_INS.values())}"
            advice = "pass the number as a constant; canonical kernels do not use subgroups"
            yield Remark("built-in", place(module, item), message, advice)


def _check_workgroup(module: SpirvModule) -> Iterator[Remark]:
    for item in module.of(Opcode.ExecutionMode):
        if item.operands[1] != _LOCAL_SIZE:
            message = f"execution mode {item.operands[1]}: a kernel may only declare its workgroup size"
            yield Remark(
                "workgroup",
                place(module, item),
                message,
                "remove it; the loader adds the float modes that a device supports",
            )
        elif (size := item.operands[2] * item.operands[3] * item.operands[4]) > INVOCATIONS:
            message = f"{size} invocations: not every device supports more than {INVOCATIONS}"
            yield Remark("workgroup", place(module, item), message, "use fewer invocations, each with more work")
    shared = [item for item in module.of(Opcode.Variable) if item.operands[2] == _WORKGROUP]
    size_bytes = sum(
        _compute_size_bytes(module, module.definitions[item.operands[0]].inputs[1]) for item in shared
    )
    if size_bytes > SHARED_BYTES:
        message = f"{size_bytes} bytes of shared memory: not every device has more than {SHARED_BYTES}"
        yield Remark("workgroup", place(module, shared[0]), message, "use smaller tiles, or several passes")


def _compute_size_bytes(module: SpirvModule, id: int) -> int:
    """Return the size of a type in shared memory, packed as scalars."""
    definition = module.definitions[id]
    match definition.opcode:
        case Opcode.TypeInt | Opcode.TypeFloat:
            return definition.inputs[0] // 8
        case Opcode.TypeBool:
            return 4
        case Opcode.TypePointer:
            return 8
        case Opcode.TypeVector:
            return definition.inputs[1] * _compute_size_bytes(module, definition.inputs[0])
        case Opcode.TypeArray:
            return (module.constant(definition.inputs[1]) or 0) * _compute_size_bytes(module, definition.inputs[0])
        case _:
            return sum(_compute_size_bytes(module, member) for member in definition.inputs)


RULES = {
    "opcode": _check_opcodes,
    "capability": _check_capabilities,
    "no-contraction": _check_contraction,
    "ext-inst": _check_extended,
    "division": _check_division,
    "nan-compare": _check_nan_compares,
    "folded-operand": _check_folded_constants,
    "descriptor": _check_descriptors,
    "built-in": _check_built_ins,
    "workgroup": _check_workgroup,
    "private-array": find_private_arrays,
    "barrier": find_barriers,
}
