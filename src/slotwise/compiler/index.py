"""What compiled code cannot know of an index by itself."""

from __future__ import annotations

from typing import Any

from slotwise.compiler.kernel import JIT

if JIT:
    from numba import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def natural(context: Any, n: Any) -> Any:
        """n, which is not negative, and is now known not to be: no index needs to be looked at for counting from the end."""

        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.and_(arguments[0], target.get_constant(types.int64, 2**63 - 1))

        return types.int64(types.int64), generate

else:

    def natural(n: int) -> int:
        """n itself."""
        return int(n)
