"""v_cmp (to VCC or an SGPR), v_cmpx (to EXEC), and their class tests."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.alu import dpp
from zinc_rt.sim.shader.alu.vector import MANTISSA, Value, bits_of, source
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I1, constant, type_bits

Test = Callable[[Emitter, Value, Value], Value]

# LLVM's comparison and whether unordered lanes count
_FLOAT_TESTS = {
    "lt": ("<", False),
    "eq": ("==", False),
    "le": ("<=", False),
    "gt": (">", False),
    "lg": ("!=", False),
    "ge": (">=", False),
    "o": ("ord", False),
    "u": ("uno", True),
    "nge": ("<", True),
    "nlg": ("==", True),
    "ngt": ("<=", True),
    "nle": (">", True),
    "neq": ("!=", True),
    "nlt": (">=", True),
}
_CONSTANT_KINDS = {"f16": "h", "f32": "f", "f64": "d", "i32": "i", "u32": "i", "i64": "l", "u64": "l"}
_INTEGER_TESTS = {"lt": "<", "eq": "==", "le": "<=", "gt": ">", "ne": "!=", "ge": ">="}


def _float_test(comparison: str, unordered: bool) -> Test:
    return lambda e, a, b: (e.b.fcmp_unordered if unordered else e.b.fcmp_ordered)(comparison, a, b)


def _integer_test(comparison: str, signed: bool) -> Test:
    return lambda e, a, b: (e.b.icmp_signed if signed else e.b.icmp_unsigned)(comparison, a, b)


def _constant_test(result: int) -> Test:
    return lambda e, a, b: constant(result, e.b.lanes(I1))


def _emit(letters: str, test: Test, *, to_exec: bool) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        first = 0 if to_exec else 1
        with dpp.operands_of(e, instruction, first) as operands:
            a, b = (
                source(e, instruction, operand, index, letter)
                for index, (operand, letter) in enumerate(zip(operands[first:], letters, strict=True))
            )
            result = test(e, a, b)
            if to_exec:
                e.regs.write_exec(e.b.and_(result, e.exec.written()))
            else:
                e.set_mask(operands[0], result)

    return emit


def _emit_class(letter: str, *, to_exec: bool) -> EmitFunction:
    """Emit a class test. Source 1 has one bit per class, in the same order as LLVM's class mask."""

    def emit(e: Emitter, instruction: Instruction) -> None:
        first = 0 if to_exec else 1
        wanted = _constant_mask(instruction.operands[first + 1])
        test = _has_class if wanted is None else lambda e, value, _: _is_class(e, value, wanted)
        _emit(letter + ("s" if letter == "H" else "i"), test, to_exec=to_exec)(e, instruction)

    return emit


def _constant_mask(operand: Operand) -> int | None:
    if operand.kind in (Kind.INTEGER, Kind.LITERAL):
        return int(operand.value or 0) & 0x3FF
    return None


def _is_class(e: Emitter, value: Value, wanted: int) -> Value:
    return e.b.intrinsic("llvm.is.fpclass", e.b.lanes(I1), value, constant(wanted), types=(value.type,))


def _has_class(e: Emitter, value: Value, wanted: Value) -> Value:
    b, of = e.b, value.type.element
    places = MANTISSA[of]
    width = type_bits(of) - 1 - places
    bits = bits_of(e, value)
    size = b.and_(bits, (1 << type_bits(of) - 1) - 1)
    infinite = constant(((1 << width) - 1) << places, bits.type)
    number = constant(6, wanted.type)  # +0, and then denormal, normal, infinity
    for limit in (constant(0, bits.type), constant((1 << places) - 1, bits.type)):
        number = b.add(number, b.zext(b.icmp_unsigned(">", size, limit), wanted.type))
    number = b.add(number, b.zext(b.icmp_unsigned(">=", size, infinite), wanted.type))
    negative = b.icmp_signed("<", bits, 0)
    number = b.select(negative, b.sub(11, number), number)
    quiet = b.unequal(b.and_(bits, 1 << places - 1), 0)
    number = b.select(b.icmp_unsigned(">", size, infinite), b.zext(quiet, wanted.type), number)
    return b.trunc(b.lshr(wanted, number), b.lanes(I1))


def _table(to_exec: bool) -> dict[str, EmitFunction]:
    prefix = "v_cmpx" if to_exec else "v_cmp"
    result: dict[str, EmitFunction] = {
        f"{prefix}_{name}_{kind}": _emit(letter * 2, _constant_test(value), to_exec=to_exec)
        for name, value in (("f", 0), ("t", 1))  # of gfx11
        for kind, letter in _CONSTANT_KINDS.items()
    }
    for name, letter in (("f16", "h"), ("f32", "f"), ("f64", "d")):
        for test, (comparison, unordered) in _FLOAT_TESTS.items():
            emit = _emit(letter * 2, _float_test(comparison, unordered), to_exec=to_exec)
            result[f"{prefix}_{test}_{name}"] = emit
        result[f"{prefix}_class_{name}"] = _emit_class(letter.upper(), to_exec=to_exec)
    for name, letter in (("16", "s"), ("32", "i"), ("64", "l")):
        for test, comparison in _INTEGER_TESTS.items():
            unsigned = _emit(letter * 2, _integer_test(comparison, False), to_exec=to_exec)
            wide = letter.upper() if letter == "l" else letter
            signed = _emit(wide * 2, _integer_test(comparison, True), to_exec=to_exec)
            result[f"{prefix}_{test}_u{name}"] = unsigned
            result[f"{prefix}_{test}_i{name}"] = signed
    return result


EMIT: dict[str, EmitFunction] = _table(False) | _table(True)
