"""How a kernel becomes LLVM's code: Numba's lowering, without what no kernel of ours has.

Numba's code is ready for anything: every call may raise, every array is counted by who holds it, every loop may go backwards. For one line
such as `load(s)[j] += 1` that is a hundred lines for LLVM, which then removes nearly all of them. That was a third of the first run's wait.
A kernel that neither raises nor allocates (`_is_plain`) has none of this to begin with: a call is a call, an element is an address, and a
loop counts. All others are lowered as Numba does it.
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
SUMS = ("binop", "inplace_binop", "unary")  # of two arrays they allocate a third
OWNER, PARENT, ITEMS, ITEM_SIZE, DATA, SHAPE, STRIDES = range(7)  # places in Numba's record of an array

# kernels, with the types of their arguments, that were found plain; those that a kernel calls are typed before it
_plain: set[tuple[Any, tuple[Any, ...]]] = set()


def look_at(state: Any, *, from_python: bool = False) -> None:
    """Have a typed kernel lowered as a plain one, if it is. What Python gets of it has to be counted."""
    if _is_plain(state) and not (from_python and _has_array(state.return_type)):
        _plain.add((state.func_id.func, state.args))
        count_references(state.targetctx, False)


def count_references(context: Any, counted: bool) -> None:
    """Whether what is lowered from now on counts who holds an array. Where it does not, it is plain."""
    context.enable_nrt = counted
    context.__dict__.pop("nrt", None)  # made when it is first needed, and then kept


def _is_plain(state: Any) -> bool:
    """Whether it neither raises nor allocates, and calls nothing that might.

    Arrays may be indexed, measured, and handed to plain kernels and to what is written in the compiler's terms. Whatever else takes or gives
    one may allocate, or raise."""
    typemap, calltypes = state.typemap, state.calltypes
    if not all(map(_is_simple, typemap.values())):
        return False
    for block in state.func_ir.blocks.values():
        for one in block.body:
            if isinstance(one, RAISES):
                return False
            if isinstance(one, (ir.SetItem, ir.StaticSetItem)) and _has_array(typemap[one.value.name]):
                return False
        for op in SUMS:
            if any(_handles_arrays(calltypes[expr]) for expr in block.find_exprs(op)):
                return False
        if not all(_is_plain_call(call, typemap, calltypes[call]) for call in block.find_exprs("call")):
            return False
    return True


def _is_plain_call(call: Any, typemap: Any, signature: Any) -> bool:
    called = typemap[call.func.name]
    if isinstance(called, types.Dispatcher):
        return (called.dispatcher.py_func, signature.args) in _plain
    if not isinstance(called, types.Function) or isinstance(called.typing_key, _Intrinsic):
        return True
    if called.typing_key is range:  # raises if it goes on by 0
        return len(call.args) < 3 or isinstance(typemap[call.args[2].name], types.Literal)
    return called.typing_key is len or not _handles_arrays(signature)


def _is_simple(kind: Any) -> bool:
    """Whether values of this type are no objects of their own."""
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
    """How others call a kernel. As Numba's, but callers of a plain kernel do not check whether it has raised."""
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
        if not isinstance(kind, types.Array):  # which Numba would take apart and put together again
            value = context.get_returned_value(builder, kind, value)
        return impl_ret_borrowed(context, builder, kind, value)  # a caller that counts has to count this

    emit.signature = description.argtypes  # type: ignore[attr-defined]
    emit.libs = (library,)  # type: ignore[attr-defined]
    return emit


def lowering(context: Any, *given: Any, **named: Any) -> Any:
    """What lowers a function: ours where nothing is counted."""
    return (Lower if context.enable_nrt else PlainLower)(context, *given, **named)


class PlainLower(Lower):  # type: ignore[misc]
    """Lowers a plain kernel."""

    def init(self) -> None:
        """As Numba's."""
        super().init()
        self._ascending: set[Any] = set()

    def incref(self, kind: Any, value: Any) -> None:
        """Nothing is counted."""

    def decref(self, kind: Any, value: Any) -> None:
        """Nothing is counted."""

    def delvar(self, name: str) -> None:
        """Nothing is to be released."""

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """As Numba's, without releasing what was there."""
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Who calls from Python counts."""
        count_references(self.context, True)
        super().create_cpython_wrapper(release_gil)

    def lower_call(self, kind: Any, expr: Any) -> Any:
        """As Numba's, which writes down every call first, with all fields of the state."""
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
        """As Numba's, but elements and rows of arrays and loops that count up by one are written out."""
        if expr.op in ("getitem", "static_getitem"):
            index = expr.index if expr.op == "getitem" else expr.index_var
            if (axes := self._axes(expr.value, index)) is not None:
                return self._read(kind, expr.value, axes)
        elif expr.op == "getiter" and (value := self.loadvar(expr.value.name)) in self._ascending:
            return self._start_loop(kind, value)
        elif expr.op == "iternext" and isinstance(self.typeof(expr.value.name), types.RangeIteratorType):
            return self._go_on(kind, self.loadvar(expr.value.name))
        elif expr.op in ("pair_first", "pair_second"):
            return self.builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        return super().lower_expr(kind, expr)

    def lower_inst(self, inst: Any) -> Any:
        """As Numba's."""
        if isinstance(inst, ir.StaticSetItem) and isinstance(self.typeof(inst.target.name), types.Array):
            return self.lower_setitem(inst.target, inst.index_var, inst.value, self.fndesc.calltypes[inst])
        return super().lower_inst(inst)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """As Numba's, but the element of an array is written out."""
        array, axes = self.typeof(target_var.name), self._axes(target_var, index_var)
        if axes is None or len(axes) < array.ndim:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        kind = self.typeof(value_var.name)
        value = self.context.cast(self.builder, self.loadvar(value_var.name), kind, signature.args[2])
        value = self.context.cast(self.builder, value, signature.args[2], array.dtype)
        address = self._address(self.loadvar(target_var.name), axes)
        return store_item(self.context, self.builder, array, value, address)

    def _range(self, kind: Any, *ends: Any) -> Any:
        """The range from 0, or from the first to the second, by steps of 1."""
        record = self.context.get_value_type(kind)
        number = record.elements[0]
        found = llvm.Constant(record, llvm.Undefined)
        for field, value in enumerate((*(() if len(ends) == 2 else (number(0),)), *ends, number(1))):
            found = self.builder.insert_value(found, value, field)
        self._ascending.add(found)
        return found

    def _axes(self, array: Any, index: Any) -> list[tuple[Any, Any]] | None:
        """The value and the type of each axis's index, where it is an element or a row that is asked for."""
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
        """Of the element, or of the first of the row. A negative index counts from the end."""
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
        """Numba's record of a loop: where its counter is, where it ends, by how much it goes on, and where the number of turns to come is."""
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

    def _go_on(self, kind: Any, loop: Any) -> Any:
        """The next value, and whether there is one."""
        builder = self.builder
        counter, _, step, turns = (builder.extract_value(loop, field) for field in range(4))
        left, value = builder.load(turns), builder.load(counter)
        there_is = builder.icmp_signed(">", left, left.type(0))
        builder.store(builder.sub(left, left.type(1), flags=["nsw"]), turns)
        builder.store(builder.add(value, step), counter)
        pair = llvm.Constant(self.context.get_value_type(kind), llvm.Undefined)
        return builder.insert_value(builder.insert_value(pair, value, 0), there_is, 1)
