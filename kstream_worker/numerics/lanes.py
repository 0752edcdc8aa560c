"""Four float64 side by side, as one value inside compiled loops: explicit vector code, with the same bits on every CPU.

LLVM vectorises neither a sum (that would reorder it) nor a short loop well (most of it is its scalar rest). Here the
program itself says which four numbers are added lane by lane: the order is fixed, whatever the width of the machine's
registers.

What is here works in functions made by `jit` or `inline` alone. No bounds are checked, nothing need be aligned.

    load(array, i)         four entries of a contiguous float64 or float32 array, from i on
    store(array, i, v)     writes them, rounded to float32 where the array is
    fill(x)                four times x
    total(v)               (v0 + v1) + (v2 + v3)
    join1(a, b), 2, 3      the first lane (two, three lanes) of a, the others of b
    a + b, a - b, a * b    lane by lane
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

WIDTH = 4
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_SINGLES = ir.VectorType(ir.FloatType(), WIDTH)


class Lanes(Protocol):
    """Four float64, as the type checker sees them."""

    def __add__(self, other: Lanes) -> Lanes:
        """Lane by lane."""
        ...

    def __sub__(self, other: Lanes) -> Lanes:
        """Lane by lane."""
        ...

    def __mul__(self, other: Lanes) -> Lanes:
        """Lane by lane."""
        ...


_LanesType: Any = type("LanesType", (types.Type,), {"__doc__": "Numba's type of `Lanes`."})
_LANES = _LanesType(name="Lanes")


def _model(manager: Any, kind: Any) -> Any:
    make: Any = models.PrimitiveModel
    return make(manager, kind, _VECTOR)


register_model(_LanesType)(_model)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def _load(_typing: Any, array: Any, index: Any) -> Any:
    single = array.dtype == types.float32

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        position = context.cast(builder, args[1], sig.args[1], types.intp)
        vector = _SINGLES if single else _VECTOR
        loaded = builder.load(_pointer(context, builder, sig.args[0], args[0], position, vector))
        loaded.align = 4 if single else 8
        return builder.fpext(loaded, _VECTOR) if single else loaded

    return _LANES(array, index), emit


@intrinsic
def _store(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    single = array.dtype == types.float32

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        position = context.cast(builder, args[1], sig.args[1], types.intp)
        kind = _SINGLES if single else _VECTOR
        entries = builder.fptrunc(args[2], kind) if single else args[2]
        stored = builder.store(entries, _pointer(context, builder, sig.args[0], args[0], position, kind))
        stored.align = 4 if single else 8
        return context.get_dummy_value()

    return types.void(array, index, value), emit


@intrinsic
def _fill(_typing: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        number = context.cast(builder, args[0], sig.args[0], types.float64)
        vector = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(WIDTH):
            vector = builder.insert_element(vector, number, cgutils.int32_t(lane))
        return vector

    return _LANES(value), emit


@intrinsic
def _total(_typing: Any, value: Any) -> Any:
    def emit(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
        lanes = [builder.extract_element(args[0], cgutils.int32_t(lane)) for lane in range(WIDTH)]
        return builder.fadd(builder.fadd(lanes[0], lanes[1]), builder.fadd(lanes[2], lanes[3]))

    return types.float64(value), emit


def _join(count: int) -> Any:
    @intrinsic
    def join(_typing: Any, left: Any, right: Any) -> Any:
        def emit(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
            order = [lane if lane < count else WIDTH + lane for lane in range(WIDTH)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), order)
            return builder.shuffle_vector(args[0], args[1], mask)

        return _LANES(left, right), emit

    return join


def _overload_operator(function: Any, instruction: str) -> None:
    @intrinsic
    def operation(_typing: Any, left: Any, right: Any) -> Any:
        def emit(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
            return getattr(builder, instruction)(args[0], args[1])

        return _LANES(left, right), emit

    @overload(function, strict=False)
    def choose(left: Any, right: Any) -> Any:
        if left == _LANES and right == _LANES:
            return lambda left, right: operation(left, right)  # type: ignore[call-arg]  # noqa: PLW0108
        return None


_overload_operator(operator.add, "fadd")
_overload_operator(operator.sub, "fsub")
_overload_operator(operator.mul, "fmul")

load = cast("Callable[[np.ndarray, int], Lanes]", _load)
store = cast("Callable[[np.ndarray, int, Lanes], None]", _store)
fill = cast("Callable[[float], Lanes]", _fill)
total = cast("Callable[[Lanes], float]", _total)
join1 = cast("Callable[[Lanes, Lanes], Lanes]", _join(1))
join2 = cast("Callable[[Lanes, Lanes], Lanes]", _join(2))
join3 = cast("Callable[[Lanes, Lanes], Lanes]", _join(3))
