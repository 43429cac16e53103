"""Float operations with a rounding mode other than nearest even, emitted as separate functions.

LLVM respects a changed rounding mode only in constrained intrinsics between two llvm.set.rounding calls. These are
emitted in a separate function so that the surrounding code is not affected. Narrowing twice in the same direction
gives the same result as narrowing once, so 16-bit floats are computed in wider formats.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.float_mode import Rounding
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I16, I32, VOID, constant, mangled, type_bits

_HOST = {Rounding.ZERO: 0, Rounding.NEAREST: 1, Rounding.UP: 2, Rounding.DOWN: 3}  # llvm.set.rounding: FLT_ROUNDS
_CONVERSIONS = ("fptrunc", "sitofp", "uitofp")  # their names are overloaded on both types


class _StrictAttributes(ir.values.FunctionAttributes):
    _known = ir.values.FunctionAttributes._known | {"strictfp"}


def directed(e: Emitter, name: str, result: ir.Type, rounding: Rounding, *values: ir.Value) -> ir.Value:
    """Emit fadd, fsub, fmul, fma, fptrunc, sitofp or uitofp on 32-bit or 64-bit floats (scalars or vectors) with
    `rounding`.
    """
    types = [result, values[0].type] if name in _CONVERSIONS else [result]
    suffix = ".".join(mangled(of) for of in types)
    kind = ir.FunctionType(result, [value.type for value in values])

    def body(function: ir.Function) -> None:
        function.attributes = _StrictAttributes(("noinline", "strictfp"))
        b, module = CodeBuilder(function.append_basic_block("entry")), function.module
        set_rounding = _declared(module, "llvm.set.rounding", ir.FunctionType(VOID, [I32]))
        metadata = ir.MetaDataType()
        arguments = [*(value.type for value in values), metadata, metadata]
        intrinsic = f"llvm.experimental.constrained.{name}.{suffix}"
        operation = _declared(module, intrinsic, ir.FunctionType(result, arguments))
        how = [ir.MetaDataString(module, text) for text in ("round.dynamic", "fpexcept.strict")]
        b.call(set_rounding, [I32(_HOST[rounding])])
        results = b.call(operation, [_opaque(b, function.args[0]), *function.args[1:], *how])
        b.call(set_rounding, [I32(_HOST[Rounding.NEAREST])])
        b.ret(results)

    return e.b.call(e.b.helper(f"zrt.{name}.{rounding.name.lower()}.{suffix}", kind, body), list(values))


def _opaque(b: CodeBuilder, value: ir.Value) -> ir.Value:
    """Hide a value from constant folding: LLVM 22 folds 1 - 1 to +0 in every rounding mode."""
    zero = b.asm(ir.FunctionType(I32, [I32]), "", "=r,0", [I32(0)], True)
    if isinstance(value.type, ir.VectorType):
        bits = ir.VectorType(ir.IntType(type_bits(value.type.element)), value.type.count)
        none = ir.Constant(bits, ir.Undefined)
        one = b.insert_element(none, b.zext(zero, bits.element) if bits.element.width > 32 else zero, I32(0))
        zero = b.shuffle_vector(one, none, ir.Constant(ir.VectorType(I32, bits.count), None))
    else:
        bits = ir.IntType(type_bits(value.type))
        zero = b.zext(zero, bits) if bits.width > 32 else zero
    return b.bitcast(b.or_(b.bitcast(value, bits), zero), value.type)


def _declared(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    result = module.globals.get(name)
    return ir.Function(module, kind, name) if result is None else result


# --- operations under the mode of the instruction


def arithmetic(e: Emitter, name: str, *values: ir.Value) -> ir.Value:
    """Emit fadd, fsub, fmul or fma on values of one 32-bit or 64-bit type (for 16 bits see `narrow`)."""
    return round_directed(e, name, e.mode.rounding(_element_type(values[0].type)), *values)


def round_directed(e: Emitter, name: str, rounding: Rounding, *values: ir.Value) -> ir.Value:
    of = values[0].type
    if rounding is not Rounding.NEAREST:
        return directed(e, name, of, rounding, *values)
    if name == "fma":
        return e.b.intrinsic("llvm.fma", of, *values)
    return getattr(e.b, name)(*values)


def narrow(e: Emitter, value: ir.Value, to: ir.Type) -> ir.Value:
    """Convert a float (or vector) to a shorter format with that format's rounding mode. Does not support 64 to 16
    bits.

    If denormal results are flushed, results below the normal range are flushed too, judged after rounding with an
    unbounded exponent.
    """
    result = _narrowed(e, value, to)
    if not e.mode.flushes_results(to):
        return result
    return zero_if_tiny(e, result, _narrowed(e, e.b.fmul(value, UP), to))


def _narrowed(e: Emitter, value: ir.Value, to: ir.Type) -> ir.Value:
    rounding = e.mode.rounding(to)
    result = _constant_like(value.type, to)
    if rounding is Rounding.NEAREST:
        return e.b.fptrunc(value, result)
    if to is not HALF:
        return directed(e, "fptrunc", result, rounding, value)
    return half_directed(e, value, rounding)


UP = 2.0**15  # moves numbers near the smallest normal away from the denormals of 16, 32 and 64 bits
SMALLEST = {HALF: 2.0**-14, FLOAT: 2.0**-126, DOUBLE: 2.0**-1022}


def zero_if_tiny(e: Emitter, result: ir.Value, scaled: ir.Value) -> ir.Value:
    """Replace a tiny result by a zero of the same sign. A result is tiny if `scaled`, the result times UP
    rounded at that scale, is below UP times the smallest normal number: gfx1201 detects tininess after rounding
    (captured on silicon).
    """
    minimum = SMALLEST[_element_type(result.type)] * UP
    tiny = e.b.fcmp_ordered("<", e.b.intrinsic("llvm.fabs", scaled.type, scaled), minimum)
    zero = e.b.intrinsic("llvm.copysign", result.type, constant(0.0, result.type), result)
    return e.b.select(tiny, zero, result)


def correct_by_error(e: Emitter, name: str, result: ir.Value, *values: ir.Value) -> ir.Value:
    """Flush a tiny result of a 32-bit or 64-bit fadd, fsub, fmul or fma to 0 if the mode says so. Sums near the
    denormals are exact.
    """
    if name not in ("fmul", "fma") or not e.mode.flushes_results(_element_type(result.type)):
        return result
    sizes = [e.b.intrinsic("llvm.fabs", value.type, value) for value in values[:2]]
    first = e.b.fcmp_ordered("<", *sizes)
    small, large = e.b.select(first, *values[:2]), e.b.select(first, values[1], values[0])
    rest = [e.b.fmul(value, UP) for value in values[2:]]
    return zero_if_tiny(e, result, arithmetic(e, name, e.b.fmul(small, UP), large, *rest))


def half_directed(e: Emitter, value: ir.Value, rounding: Rounding) -> ir.Value:
    """Convert 32-bit floats to halves: round to nearest, then step to the neighbour if the rounding mode requires
    it.

    Does not use a constrained intrinsic: the x86 back end of LLVM 22 aborts the process on it.
    """
    b, of = e.b, value.type
    nearest = b.fptrunc(value, _constant_like(of, HALF))
    back = b.fpext(nearest, of)
    bits = b.bitcast(nearest, _constant_like(of, I16))
    size, got = (b.intrinsic("llvm.fabs", of, item) for item in (value, back))
    farther = b.zext(b.fcmp_ordered(">", got, size), bits.type)
    nearer = b.zext(b.fcmp_ordered("<", got, size), bits.type)
    if rounding is not Rounding.ZERO:
        negative = b.icmp_signed("<", b.bitcast(value, _constant_like(of, I32)), 0)
        inwards = negative if rounding is Rounding.UP else b.not_(negative)
        none = bits.type(0) if isinstance(bits.type, ir.IntType) else ir.Constant(bits.type, None)
        farther, nearer = b.select(inwards, farther, none), b.select(inwards, none, nearer)
        bits = b.add(bits, nearer)
    return b.bitcast(b.sub(bits, farther), nearest.type)


def from_integer(e: Emitter, value: ir.Value, to: ir.Type, *, signed: bool) -> ir.Value:
    """Convert a 32-bit integer (or vector) to a 32-bit float."""
    name, result = "sitofp" if signed else "uitofp", _constant_like(value.type, to)
    rounding = e.mode.rounding(to)
    if rounding is Rounding.NEAREST or to is not FLOAT:
        return getattr(e.b, name)(value, result)
    return directed(e, name, result, rounding, value)


def _element_type(of: ir.Type) -> ir.Type:
    return of.element if isinstance(of, ir.VectorType) else of


def _constant_like(like: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType(element, like.count) if isinstance(like, ir.VectorType) else element
