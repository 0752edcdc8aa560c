"""Keeps a compiled function apart: LLVM may not copy its code into those that call it.

Numba optimises a function anew inside each function that calls it, at every level. Where large functions are called
from several places the time to compile grows with all the copies; a call costs some ten nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba import types
from numba.extending import intrinsic


@intrinsic
def _outline(_typing: Any) -> Any:
    def emit(context: Any, builder: Any, _sig: Any, _args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), emit


outline = cast("Callable[[], None]", _outline)
"""Called anywhere in a function made by `jit` or `inline`: that function is never inlined."""
