"""Plain kernels: kernels that neither raise nor allocate are lowered without reference counts.

Numba's lowering is ready for anything: every call may raise, every array is counted by what holds it, and every loop
may go backwards. LLVM then removes nearly all of it, which costs a fourth of the CPU time of a first run. Nearly all
kernels are plain (`_is_plain`). Nothing in them counts references, their callers do not check whether they raised, an
element of an array is an address, and a loop counts. Every other kernel is lowered as Numba does it.

This is safe because a plain kernel creates no array: every array that it sees is owned by its caller, or is a view of
memory that a `Store` owns.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir as llvm
from numba import types
from numba.core import ir
from numba.core.extending import _Intrinsic
from numba.core.imputils import impl_ret_borrowed, user_function
from numba.core.lowering import Lower
from numba.np.arrayobj import load_item, store_item

VALUES = (types.Number, types.Boolean, types.Record, types.Array, types.NoneType, types.Omitted, types.SliceType)
LOOPS = (types.RangeType, types.RangeIteratorType, types.Pair)
NAMES = (types.Function, types.Dispatcher, types.FunctionType, types.Module, types.NumberClass, types.Literal)
RAISES = (ir.Raise, ir.StaticRaise, ir.DynamicRaise, ir.TryRaise)
OPERATORS = ("binop", "inplace_binop", "unary")  # with an array operand they allocate the result

OWNER, PARENT, ITEMS, ITEM_SIZE, DATA, SHAPE, STRIDES = range(7)  # places in Numba's record of an array

# plain kernels so far, with the types of their arguments; a kernel is typed after the kernels that it calls
_plain: set[tuple[Any, tuple[Any, ...]]] = set()


def prepare(state: Any, *, from_python: bool = False) -> None:
    """Switch reference counts off for a typed kernel that is plain. Arrays returned to Python must be counted."""
    if _is_plain(state) and not (from_python and _has_array(state.return_type)):
        _plain.add((state.func_id.func, state.args))
        count_references(state.targetctx, False)


def count_references(context: Any, counted: bool) -> None:
    """Switch reference counts on or off for what is lowered from now on. Without them a kernel is plain."""
    context.enable_nrt = counted
    context.__dict__.pop("nrt", None)  # Numba makes it when first needed, and then keeps it


def _is_plain(state: Any) -> bool:
    """Return whether a kernel neither raises nor allocates, and calls nothing that might.

    A plain kernel may index and measure arrays, and hand them to plain kernels and to intrinsics. Any other operation
    on an array may allocate, or raise.
    """
    typemap, calltypes = state.typemap, state.calltypes
    if not all(map(_is_simple, typemap.values())):
        return False
    for block in state.func_ir.blocks.values():
        for one in block.body:
            if isinstance(one, RAISES):
                return False
            if isinstance(one, (ir.SetItem, ir.StaticSetItem)) and _has_array(typemap[one.value.name]):
                return False
        for op in OPERATORS:
            if any(_handles_arrays(calltypes[expr]) for expr in block.find_exprs(op)):
                return False
        if not all(_is_plain_call(call, typemap, calltypes[call]) for call in block.find_exprs("call")):
            return False
    return True


def _is_plain_call(call: Any, typemap: Any, signature: Any) -> bool:
    """Return whether a call neither raises nor allocates."""
    called = typemap[call.func.name]
    if isinstance(called, types.Dispatcher):
        return (called.dispatcher.py_func, signature.args) in _plain
    if not isinstance(called, types.Function) or isinstance(called.typing_key, _Intrinsic):
        return True
    if called.typing_key is range:  # raises if its step is 0
        return len(call.args) < 3 or isinstance(typemap[call.args[2].name], types.Literal)
    return called.typing_key is len or not _handles_arrays(signature)


def _is_simple(kind: Any) -> bool:
    """Return whether values of this type are no objects on the heap."""
    if isinstance(kind, types.BaseTuple):
        return all(map(_is_simple, kind))
    if isinstance(kind, types.BoundFunction):
        return isinstance(kind.this, types.Number)
    return isinstance(kind, (*VALUES, *LOOPS, *NAMES)) or kind is types.voidptr


def _has_array(kind: Any) -> bool:
    return any(map(_has_array, kind)) if isinstance(kind, types.BaseTuple) else isinstance(kind, types.Array)


def _handles_arrays(signature: Any) -> bool:
    return any(map(_has_array, (*signature.args, signature.return_type)))


def call_to(description: Any, library: Any, *, plain: bool) -> Any:
    """Return how other kernels call a kernel: as Numba does it, but callers of a plain kernel do not check whether it raised."""
    if not plain:
        return user_function(description, [library])
    kind = description.restype

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function, convention = context.declare_function(builder.module, description), context.call_conv
        with builder.goto_entry_block():
            result = builder.alloca(convention.get_return_type(kind).pointee)
        given = convention._get_arg_packer(description.argtypes).as_arguments(builder, arguments)
        builder.call(function, [result, builder.function.args[1], *given])
        value = builder.load(result)
        if not isinstance(kind, types.Array):  # Numba would take an array apart and put it together again
            value = context.get_returned_value(builder, kind, value)
        return impl_ret_borrowed(context, builder, kind, value)  # a caller that counts has to count this

    emit.signature = description.argtypes  # type: ignore[attr-defined]
    emit.libs = (library,)  # type: ignore[attr-defined]
    return emit


def lowering(context: Any, *given: Any, **named: Any) -> Any:
    """Return the object that lowers a function: ours if references are not counted."""
    return (Lower if context.enable_nrt else PlainLower)(context, *given, **named)


class PlainLower(Lower):  # type: ignore[misc]
    """The lowering of a plain kernel."""

    def init(self) -> None:
        """Begin without ranges that count up by one."""
        super().init()
        self._ascending: set[Any] = set()

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Count references in the wrapper: callers from Python do."""
        count_references(self.context, True)
        super().create_cpython_wrapper(release_gil)

    def lower_call(self, kind: Any, expr: Any) -> Any:
        """Lower a call. Numba would first write the call down for debugging, with all fields of the state."""
        function, signature = self.typeof(expr.func.name), self.fndesc.calltypes[expr]
        if not isinstance(function, (types.Dispatcher, types.Function)) or signature.recvr or expr.target:
            return super().lower_call(kind, expr)
        values = self.fold_call_args(function, signature, expr.args, expr.vararg, expr.kws)
        if isinstance(function, types.Function) and function.typing_key is range and len(values) < 3:
            return self._range(signature.return_type, *values)
        value = self.context.get_function(function, signature)(self.builder, values, self.loc)
        value = self.context.get_dummy_value() if value is None else value
        return self.context.cast(self.builder, value, signature.return_type, kind)

    def lower_expr(self, kind: Any, expr: Any) -> Any:
        """Lower an expression. Elements and rows of arrays, and loops that count up by one, are written out."""
        if expr.op in ("getitem", "static_getitem"):
            index = expr.index if expr.op == "getitem" else expr.index_var
            if (axes := self._axes(expr.value, index)) is not None:
                return self._read(kind, expr.value, axes)
        elif expr.op == "getiter" and (value := self.loadvar(expr.value.name)) in self._ascending:
            return self._start_loop(kind, value)
        elif expr.op == "iternext" and isinstance(self.typeof(expr.value.name), types.RangeIteratorType):
            return self._next_value(kind, self.loadvar(expr.value.name))
        elif expr.op in ("pair_first", "pair_second"):
            return self.builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        return super().lower_expr(kind, expr)

    def lower_inst(self, inst: Any) -> Any:
        """Lower a statement. An assignment to an element at a constant index is one at any index."""
        if isinstance(inst, ir.StaticSetItem) and isinstance(self.typeof(inst.target.name), types.Array):
            return self.lower_setitem(inst.target, inst.index_var, inst.value, self.fndesc.calltypes[inst])
        return super().lower_inst(inst)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Lower an assignment to an item. The element of an array is written out."""
        array, axes = self.typeof(target_var.name), self._axes(target_var, index_var)
        if axes is None or len(axes) < array.ndim:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        kind = self.typeof(value_var.name)
        value = self.context.cast(self.builder, self.loadvar(value_var.name), kind, signature.args[2])
        value = self.context.cast(self.builder, value, signature.args[2], array.dtype)
        address = self._address(self.loadvar(target_var.name), axes)
        return store_item(self.context, self.builder, array, value, address)

    def _range(self, kind: Any, *ends: Any) -> Any:
        """Return the range from 0 to the one end, or from the first to the second, by steps of 1."""
        record = self.context.get_value_type(kind)
        number = record.elements[0]
        found = llvm.Constant(record, llvm.Undefined)
        for field, value in enumerate((*(() if len(ends) == 2 else (number(0),)), *ends, number(1))):
            found = self.builder.insert_value(found, value, field)
        self._ascending.add(found)
        return found

    def _axes(self, array: Any, index: Any) -> list[tuple[Any, Any]] | None:
        """Return the value and the type of each axis's index, or None if neither an element nor a row is asked for."""
        if not isinstance(kind := self.typeof(array.name), types.Array) or kind.layout != "C" or index is None:
            return None
        asked = self.typeof(index.name)
        kinds = tuple(asked) if isinstance(asked, types.BaseTuple) else (asked,)
        is_row = len(kinds) == 1 and kind.ndim == 2
        if not all(isinstance(one, types.Integer) for one in kinds) or not (is_row or len(kinds) == kind.ndim):
            return None
        value = self.loadvar(index.name)
        if not isinstance(asked, types.BaseTuple):
            return [(value, asked)]
        return [(self.builder.extract_value(value, axis), one) for axis, one in enumerate(kinds)]

    def _address(self, array: Any, axes: list[tuple[Any, Any]]) -> Any:
        """Return the address of the element, or of the first of the row. A negative index counts from the end."""
        builder, shape = self.builder, self.builder.extract_value(array, SHAPE)
        at = None
        for axis, (index, kind) in enumerate(axes):
            length = builder.extract_value(shape, axis)
            if isinstance(kind, types.Literal):
                place = self.context.get_constant(types.intp, kind.literal_value)
                place = place if kind.literal_value >= 0 else builder.add(place, length)
            elif kind.signed:
                place = self.context.cast(builder, index, kind, types.intp)
                negative = builder.icmp_signed("<", place, place.type(0))
                place = builder.select(negative, builder.add(place, length), place)
            else:
                place = self.context.cast(builder, index, kind, types.uintp)
            at = place if at is None else builder.add(builder.mul(at, length), place)
        for axis in range(len(axes), len(shape.type)):
            at = builder.mul(at, builder.extract_value(shape, axis))
        return builder.gep(builder.extract_value(array, DATA), [at])

    def _read(self, kind: Any, array: Any, axes: list[tuple[Any, Any]]) -> Any:
        source, value = self.typeof(array.name), self.loadvar(array.name)
        address = self._address(value, axes)
        if len(axes) == source.ndim:
            element = load_item(self.context, self.builder, source, address)
            return self.context.cast(self.builder, element, source.dtype, kind)
        length, step = (self.builder.extract_value(value, (field, 1)) for field in (SHAPE, STRIDES))
        row = llvm.Constant(self.context.get_value_type(kind), llvm.Undefined)
        for field in (OWNER, PARENT, ITEM_SIZE):
            row = self.builder.insert_value(row, self.builder.extract_value(value, field), field)
        for place, part in ((ITEMS, length), (DATA, address), ((SHAPE, 0), length), ((STRIDES, 0), step)):
            row = self.builder.insert_value(row, part, place)
        return row

    def _start_loop(self, kind: Any, ends: Any) -> Any:
        """Return Numba's record of a loop: the addresses of its counter and of its number of turns to come, its end and its step."""
        builder, whole = self.builder, self.context.get_value_type(kind.yield_type)
        start, stop, step = (builder.extract_value(ends, field) for field in range(3))
        with builder.goto_entry_block():
            counter, turns = builder.alloca(whole), builder.alloca(whole)
        length = builder.sub(stop, start)
        builder.store(start, counter)
        builder.store(builder.select(builder.icmp_signed(">", length, whole(0)), length, whole(0)), turns)
        loop = llvm.Constant(self.context.get_value_type(kind), llvm.Undefined)
        for field, part in enumerate((counter, stop, step, turns)):
            loop = builder.insert_value(loop, part, field)
        return loop

    def _next_value(self, kind: Any, loop: Any) -> Any:
        """Return the next value, and whether there is one."""
        builder = self.builder
        counter, _, step, turns = (builder.extract_value(loop, field) for field in range(4))
        left, value = builder.load(turns), builder.load(counter)
        there_is = builder.icmp_signed(">", left, left.type(0))
        builder.store(builder.sub(left, left.type(1), flags=["nsw"]), turns)
        builder.store(builder.add(value, step), counter)
        pair = llvm.Constant(self.context.get_value_type(kind), llvm.Undefined)
        return builder.insert_value(builder.insert_value(pair, value, 0), there_is, 1)
