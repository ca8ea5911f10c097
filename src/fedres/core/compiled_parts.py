"""Compiled code that is only ever a part of other code, and never runs by itself.

numba optimises every function and makes machine code of it before it lets another one call it.
Here all but a few functions are laid into their caller, which is optimised as a whole once more:
what was made of its parts is thrown away. Leaving that out takes a third off the time to compile.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Part(JITCodeLibrary):
    """What numba keeps of a function: here, only what its callers link in."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002
        self._ensure_finalized()
        return 0  # numba's word for a function without machine code

    @property
    def codegen(self) -> Any:  # whose `set_env` numba calls, and needs machine code for
        return self

    def set_env(self, *_: Any) -> None:
        """The environment of a function belongs to machine code that is not made."""


class PartCompiler(Compiler):
    """Compile a function that only compiled code calls: `njit(pipeline_class=PartCompiler)`."""

    def compile_extra(self, func: Any) -> Any:
        """As numba does, but for what becomes of the result."""
        self.state.library = _Part(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)
