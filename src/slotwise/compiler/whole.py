"""The compiler of our own: kernels that only kernels call are parts; a kernel that Python calls is a whole.

Numba optimises every function, with all that it calls, down to machine code and keeps that on disk, though most
kernels are only ever called by other kernels, which contain a copy. Here a kernel has two faces. As a part of other
kernels it is typed, lowered and tidied up. As a whole, which Python or `call_at` calls, it is linked with its parts,
optimised and cached.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any, ClassVar

import numba
from llvmlite import binding
from numba import types
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import AnnotateTypes, NativeLowering, NoPythonBackend

from slotwise.compiler import sources
from slotwise.compiler.lowering import call_to, lowering, prepare

# no lock of the interpreter is held; division by zero gives inf
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

# passes of Numba's for what no kernel has: closures, `with`, whole-array expressions, parallel loops
UNUSED = {
    "with_lifting",
    "inline_closure_likes",
    "make_function_op_code_to_jit_function",
    "inline_inlinables",
    "find_literally",
    "literal_unroll",
    "inline_overloads",
    "nopython_rewrites",
    "nopython_supported_feature_validation",
    "dump_parfor_diagnostics",
}


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """What a kernel is to those that call it: code to be linked in. No machine code is made of it."""

    _shared_module: Any

    def finalize(self) -> None:
        """Link nothing in: a whole finds what its parts call, once."""
        self._raise_if_finalized()
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """Return the part with all that it calls, for callers other than a whole, such as a user's own policy."""
        if self._shared_module is None:
            module = self._final_module.clone()
            for library in _called_by(self):
                _link(module, library)
            for function in module.functions:
                if not function.is_declaration and function.linkage == binding.Linkage.external:
                    function.linkage = "linkonce_odr"
            self._shared_module = module
        return self._shared_module


def _called_by(library: Any) -> list[Any]:
    """Return the libraries to link: first the parts that the library and its parts call, then all other libraries. Of
    those the linker takes only the functions that are called already; they contain what they call themselves."""
    found = dict.fromkeys(library._linking_libraries)
    waiting = deque(found)
    while waiting:
        if isinstance(part := waiting.popleft(), _Part):
            new = [one for one in dict.fromkeys(part._linking_libraries) if one not in found]
            found.update(dict.fromkeys(new))
            waiting.extend(new)
    return sorted(found, key=lambda one: not isinstance(one, _Part))


def _link(module: Any, library: Any) -> None:
    alone = library._final_module if isinstance(library, _Part) else library._get_module_for_linking()
    module.link_in(alone, preserve=True)


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """A kernel with all its parts."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._own: set[str] = set()

    def finalize(self) -> None:
        """Link in what the parts call, then continue as Numba does."""
        for library in _called_by(self):
            self._reload_init.update(library._reload_init)
            _link(self._final_module, library)
        self._linking_libraries.clear()
        super().finalize()

    def add_llvm_module(self, module: Any) -> None:
        """Note which functions others may call by name."""
        self._own |= {f.name for f in module.functions if not f.is_declaration}
        super().add_llvm_module(module)

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in self._own:
                # Functions that are called once are inlined, and no copy is kept for others. The linkage is not "internal":
                # such a function keeps a name in machine code, with unused arguments left out. The loader would give it
                # to any later function of that name.
                function.linkage = "private"
        super()._optimize_final_module()


class _Step(LoweringPass):  # type: ignore[misc]
    def __init__(self) -> None:
        LoweringPass.__init__(self)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    _name = "slotwise_lowering"

    @property
    def lowering_class(self) -> Any:
        return lowering


@register_pass(mutates_CFG=False, analysis_only=False)
class _OpenPart(_Step):
    _name = "slotwise_open_part"

    def run_pass(self, state: Any) -> bool:
        prepare(state)
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _ClosePart(_Step):
    """The end of a part. Callers find a part by a key, for which Numba takes its machine code. A part has none, so the
    key is a builtin function of its own."""

    _name = "slotwise_close_part"

    def run_pass(self, state: Any) -> bool:
        lowered, key = state["cr"], [].append  # type: ignore[var-annotated]
        call = call_to(lowered.fndesc, state.library, plain=not state.targetctx.enable_nrt)
        state.targetctx.insert_func_defn([(call, key, call.signature)])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = lowered._replace(cfunc=key)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _OpenWhole(_Step):
    _name = "slotwise_open_whole"

    def run_pass(self, state: Any) -> bool:
        prepare(state, from_python=True)
        state.library = _Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _CloseWhole(_Step):
    """The end of a whole. Numba sets the environment of a function when it makes its machine code. The environments of
    the parts are set here."""

    _name = "slotwise_close_whole"

    def run_pass(self, state: Any) -> bool:
        state.library._ensure_finalized()
        for environment in state.cr._find_referenced_environments():
            state.library.codegen.set_env(environment.env_name, environment)
        return True


class _Passes(PassManager):  # type: ignore[misc]
    """Numba's passes, one after the other, without events for listeners. An event holds the types of all arguments
    written out, and the type of a state is a record of two hundred numbers."""

    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:  # noqa: N802
        pss.analysis = self._analysis
        pss.run_initialization(internal_state)
        pss.run_pass(internal_state)
        pss.run_finalizer(internal_state)


class _Typing:
    """Numba's typing context with a memory of what operators and builtin functions make of which types. For every sum
    Numba tries all ways to add, from the unlikely ones on, and writes down why each does not fit."""

    _found: ClassVar[dict[Any, Any]] = {}

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call, from memory if it was found before."""
        if kws or not isinstance(function, types.Function):
            return self._context.resolve_function_type(function, args, kws)
        signature = self._found.get((function, args))
        if signature is None:
            signature = self._found[function, args] = self._context.resolve_function_type(function, args, kws)
        return signature


def _passes(state: Any) -> Any:
    state.typingctx = _Typing(state.typingctx)
    found = _Passes("slotwise")
    steps = DefaultPassBuilder.define_nopython_pipeline(state).passes
    named = [(_Lowering, told) if step is NativeLowering else (step, told) for step, told in steps]
    found.passes[:] = [step for step in named if step[0]._name not in UNUSED]
    return found


class PartCompiler(CompilerBase):  # type: ignore[misc]
    """A kernel as a part of others."""

    def define_pipelines(self) -> list[Any]:
        self.state.flags.no_compile = True
        passes = _passes(self.state)
        passes.add_pass_after(_OpenPart, AnnotateTypes)
        passes.add_pass_after(_ClosePart, _Lowering)
        passes.finalize()
        return [passes]


class WholeCompiler(CompilerBase):  # type: ignore[misc]
    """A kernel that Python calls, or a hook."""

    def define_pipelines(self) -> list[Any]:
        passes = _passes(self.state)
        passes.add_pass_after(_OpenWhole, AnnotateTypes)
        passes.add_pass_after(_CloseWhole, NoPythonBackend)
        passes.finalize()
        return [passes]


class StampedCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, void as soon as anything has changed that a kernel was made from; Numba looks only at its own file."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = sources.stamp(function.__module__)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Load a kernel without importing all that the compiler knows of Python and NumPy, which takes a third of a second."""
        _install_runtime()
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, context)

    def holds(self) -> bool:
        """Return whether the cache has the function for this machine."""
        magic = cpu_target.target_context.codegen().magic_tuple()
        return any(key[1] == magic for key in self._cache_file._load_index())


@cache
def _install_runtime() -> None:
    """Make the functions of Numba's runtime known that loaded kernels may call."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class LateCache:
    """A cache that is opened when it is first needed. A kernel that is typed in at a prompt has no cache, and needs none
    as long as only other kernels call it."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._cache: StampedCache | None = None

    @property
    def found(self) -> StampedCache:
        """The cache."""
        if self._cache is None:
            self._cache = StampedCache(self._function)
        return self._cache

    @property
    def cache_path(self) -> str:
        """Where it is."""
        return str(self.found.cache_path)

    def load_overload(self, *given: Any) -> Any:
        """Load a kernel from the cache."""
        return self.found.load_overload(*given)

    def save_overload(self, *given: Any) -> None:
        """Save a kernel in the cache."""
        self.found.save_overload(*given)

    def flush(self) -> None:
        """Empty the cache of this kernel."""
        self.found.flush()


def dispatcher(function: Any) -> Any:
    """Return a kernel with two faces: Python calls the whole, and the compiler links the part into other kernels."""
    whole: Any = numba.njit(function, no_cfunc_wrapper=True, pipeline_class=WholeCompiler, **OPTIONS)
    whole._cache = LateCache(function)
    made: list[Any] = []

    def part() -> Any:
        if not made:
            bare = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}
            made.append(numba.njit(function, pipeline_class=PartCompiler, **bare, **OPTIONS))
        return made[0]

    whole.get_call_template = lambda args, kws: part().get_call_template(
        tuple(map(types.unliteral, args)), {name: types.unliteral(one) for name, one in kws.items()}
    )
    whole.get_overload = lambda signature: part().get_overload(signature)
    return whole


def callback(function: Any, signature: Any) -> Any:
    """Return a kernel that is called by its address. Compile it, or load it from the cache."""
    options = {"error_model": OPTIONS["error_model"]}
    value: Any = CFunc(function, normalize_signature(signature), {}, options, pipeline_class=WholeCompiler)
    value._cache = LateCache(function)
    value.compile()
    return value
