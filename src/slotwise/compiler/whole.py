"""The compiler of our own: kernels that only kernels call are linked in as parts; a kernel that Python calls is
compiled once, whole.

Numba optimises every function, with all that it calls, down to machine code and keeps that on disk, though most kernels are only
ever called by others, which contain them. Here a kernel has two faces. As a part of others it is typed, lowered and tidied up, no more. As one
that Python calls, or as a policy's hook, it is linked with its parts, optimised and cached. Optimised twice: the second time
what was inlined the first time is small enough to be inlined further (measured: 10 % of the simulator's speed). Inlining is all
that the first time is for, so it is made quickly.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any, ClassVar

import numba
from llvmlite import binding
from numba import types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import AnnotateTypes, NativeLowering, NoPythonBackend

from slotwise.compiler import sources
from slotwise.compiler.lowering import call_to, look_at, lowering

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

FEW_PARTS = 8  # that a small kernel calls, with what they call
QUICK, THOROUGH = 1, 3  # LLVM's levels of optimisation
ENVIRONMENT = "_ZN08NumbaEnv"  # begins the names of functions' environments


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """What a kernel is to those that call it: code to be linked in. No machine code is made of it."""

    _shared_module: Any

    def _optimize_functions(self, module: Any) -> None:
        """The least that has to be done before kernels are put into each other: without it they get 10 % slower; more gains nothing."""
        module.data_layout = self._codegen._data_layout
        passes = binding.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        builder = self._codegen._pass_builder()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def add_ir_module(self, module: Any) -> None:
        """As Numba's, without looking for faults: a whole is looked through."""
        parsed = binding.parse_assembly(cgutils.normalize_ir_text(str(module)))
        parsed.name = module.name
        self.add_llvm_module(parsed)

    def finalize(self) -> None:
        """Nothing is linked in: a whole finds what its parts call, once."""
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
        self._small = False

    def finalize(self) -> None:
        """As Numba's, with what the parts call."""
        called = _called_by(self)
        self._small = len(called) <= FEW_PARTS
        for library in called:
            self._reload_init.update(library._reload_init)
            _link(self._final_module, library)
        self._linking_libraries.clear()
        super().finalize()

    def add_llvm_module(self, module: Any) -> None:
        """As Numba's; it notes what others may call by name."""
        self._own |= {f.name for f in module.functions if not f.is_declaration}
        super().add_llvm_module(module)

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in self._own:
                # What is called once is inlined, and nothing is kept for others. Not "internal": such a function still has a name in machine
                # code, by which the loader would give it, with arguments left out that it does not use, to any
                # later function of that name.
                function.linkage = "private"
        self._optimize(QUICK, vectorized=False)
        self._optimize(THOROUGH, vectorized=True)

    def _optimize(self, level: int, *, vectorized: bool) -> None:
        """Loops of large kernels are not unrolled: most go over a few types or resources, and were slower for it (guarded by 5 %), and longer compiled.
        Those of small ones, such as a look at a long table, are."""
        codegen = self._codegen
        passes, builder = codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes.run(self._final_module, builder)  # counts of references that cancel out
        options = binding.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization, options.slp_vectorization = vectorized, False
        options.loop_unrolling = vectorized and self._small
        builder = binding.create_pass_builder(codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        """Beside machine code Numba keeps code that others can link in. No kernel links it in, so only the names
        are kept, which load in half the time."""
        self._ensure_finalized()
        module = self._final_module
        named = [f.name for f in module.functions if not f.is_declaration and f.linkage != binding.Linkage.private]
        lines = [f'define void @"{name}"() {{ ret void }}' for name in named]
        lines += [f'@"{g.name}" = global i64 0' for g in module.global_variables if g.name.startswith(ENVIRONMENT)]
        names = binding.parse_assembly("\n".join(lines))
        return self.name, "object", (self._get_compiled_object(), names.as_bitcode())


class _Flags(Flags):  # type: ignore[misc]
    """Numba's options of a function. It compares them thousands of times, by writing out all of them; here by what is set."""

    def __eq__(self, other: object) -> Any:
        return self._values == other._values if isinstance(other, _Flags) else NotImplemented

    def __hash__(self) -> int:
        return hash(_Flags)


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
        look_at(state)
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _ClosePart(_Step):
    """Callers find the part by a key, for which Numba takes the function in machine code. There is none: any builtin of its own will do."""

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
        look_at(state, from_python=True)
        state.library = _Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _CloseWhole(_Step):
    """Numba gives each function its environment when it makes machine code of it; here the parts' have to be given, too."""

    _name = "slotwise_close_whole"

    def run_pass(self, state: Any) -> bool:
        state.library._ensure_finalized()
        for environment in state.cr._find_referenced_environments():
            state.library.codegen.set_env(environment.env_name, environment)
        return True


class _Passes(PassManager):  # type: ignore[misc]
    """Numba's passes, one after the other. Numba also notifies listeners of each, with the types of all arguments written out, and a state is a
    record of two hundred numbers: some hundredths of the first run's wait."""

    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:  # noqa: N802
        pss.analysis = self._analysis
        pss.run_initialization(internal_state)
        pss.run_pass(internal_state)
        pss.run_finalizer(internal_state)


class _Typing:
    """Numba's typing context, which here remembers what operators and builtin functions make of which types. Numba tries all ways to add, from
    the unlikely ones on, for every sum, and writes down why each would not do."""

    _found: ClassVar[dict[Any, Any]] = {}

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        """As Numba's."""
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
        """As Numba's, but all that the compiler knows of Python and NumPy, which takes a third of a second to import, is left to who compiles."""
        _install_runtime()
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, context)

    def holds(self) -> bool:
        """Whether it has the function for this machine."""
        magic = cpu_target.target_context.codegen().magic_tuple()
        return any(key[1] == magic for key in self._cache_file._load_index())


@cache
def _install_runtime() -> None:
    """What loaded kernels may call of Numba's runtime. (Numba would compile some of it anew; that is in the kernels.)"""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class LateCache:
    """A cache that is looked for when it is first needed: there are hundreds of kernels, and few of them are ever called from Python."""

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
        """As Numba's."""
        return self.found.load_overload(*given)

    def save_overload(self, *given: Any) -> None:
        """As Numba's."""
        self.found.save_overload(*given)

    def flush(self) -> None:
        """As Numba's."""
        self.found.flush()


def dispatcher(function: Any) -> Any:
    """Both faces of a kernel in one: Python calls it whole, and to the compiler of others it is the part."""
    whole: Any = numba.njit(function, no_cfunc_wrapper=True, pipeline_class=WholeCompiler, **OPTIONS)
    whole._compiler._customize_flags = _Flags
    whole._cache = LateCache(function)
    whole._compilation_chain_init_hook = lambda: (
        None
    )  # looks for extensions of Numba's; who compiles does so anyway
    made: list[Any] = []

    def part() -> Any:
        if not made:
            bare = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}
            made.append(numba.njit(function, pipeline_class=PartCompiler, **bare, **OPTIONS))
            made[0]._compiler._customize_flags = _Flags
        return made[0]

    whole.get_call_template = lambda args, kws: part().get_call_template(
        tuple(map(types.unliteral, args)), {name: types.unliteral(one) for name, one in kws.items()}
    )
    whole.get_overload = lambda signature: part().get_overload(signature)
    return whole


def callback(function: Any, signature: Any) -> Any:
    """A kernel that is called by its address; compiled here, or loaded from the cache."""
    options = {"error_model": OPTIONS["error_model"]}
    value: Any = CFunc(function, normalize_signature(signature), {}, options, pipeline_class=WholeCompiler)
    customize = value._compiler._customize_flags
    value._compiler._customize_flags = lambda flags: _Flags(customize(flags))
    value._cache = LateCache(function)
    value.compile()
    return value
