"""The same functions compiled: primitives anew, for vectors; everything else as it stands.

`compiled(function, *kinds)` makes a twin of a function whose names are bound to compiled twins of
what it calls: to the versions below where it calls `fedres.core.primitives`, and, where it calls
one of `functools.singledispatch`, to the version for one of these kinds. The reference is the
function itself, called without any of this.

numba's disk cache watches only the file of the function that is called, so twins close over a
digest of the files of all that they call: they are compiled anew when one of these changes. In it
functions of one name are taken for each other when different processes compiled them, so a twin's
name says what it is the twin of, and for which kinds; and processes take turns, because one index
written by two may lead to the wrong function.
"""

from collections.abc import Callable
from dis import get_instructions
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from filelock import FileLock
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

from fedres.core import primitives
from fedres.core.compiled_parts import PartCompiler
from fedres.core.primitives import LANES, NOTHING, SHORTER
from fedres.core.source import digest

# No fast-math: sums keep their order, and NaN and infinity their meaning, because a diverging run
# must be seen to diverge. Without numba's runtime (`_nrt`) nothing can be allocated and no
# reference is counted, which took two thirds of the time.
OPTIONS: Any = {"nogil": True, "error_model": "numpy", "_nrt": False}
# What only compiled code calls needs no way in from Python, which takes longer to compile than it.
INNER: Any = OPTIONS | {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
}

# An unsigned index need not be tested for counting from the end.
U = np.uint64

_PRIMITIVES: dict[Any, Any] = {}


@cache
def compiled(function: Callable[..., Any], *kinds: type, allocates: bool = False) -> Any:
    """A compiled twin of a function, its machine code kept on disk.

    Parameters
    ----------
    function
        Any function of arrays, numbers and named tuples of them.
    kinds
        Types that decide between versions of what it calls.
    allocates
        Whether it makes arrays on its way.

    Examples
    --------
    >>> from fedres.core.elementary import exp
    >>> bool(compiled(exp)(1.0) == exp(1.0))
    True
    """
    options = OPTIONS | {"_nrt": allocates}
    twin = _twin(function, kinds, allocates)
    entry = _entry(digest(bytes([allocates]), *_sources(twin.py_func)))
    bound = FunctionType(
        entry.__code__, {"__name__": __name__, "called": twin}, closure=entry.__closure__
    )
    bound.__qualname__ = f"{function.__module__}.{twin.py_func.__qualname__}"
    dispatcher = njit(cache=True, **options)(bound)
    dispatcher.compile = _by_turns(dispatcher)
    return dispatcher


def _by_turns(dispatcher: Any) -> Callable[..., Any]:
    """Load or compile for some types of arguments while no other process does."""
    compile_ = dispatcher.compile
    path = Path(dispatcher.stats.cache_path) / f"{dispatcher.__qualname__}.lock"

    def compile_alone(signature: Any) -> Any:
        with FileLock(path):  # made here, as a forked process may not use its parent's
            return compile_(signature)

    return compile_alone


def _entry(key: str) -> FunctionType:
    def run(*arguments: Any) -> Any:
        assert key
        return called(*arguments)  # type: ignore[name-defined]  # noqa: F821

    return run  # type: ignore[return-value]


def _sources(twin: FunctionType) -> list[bytes]:
    """All that decides what a twin is compiled to: files, and constants from elsewhere."""
    found, constants, waiting = {__file__, primitives.__file__}, set(), [twin]
    while waiting:
        function = waiting.pop()
        found.add(function.__code__.co_filename)
        if function.__module__ == __name__:
            continue  # a primitive, whose globals are those of this module
        for name, value in function.__globals__.items():
            if isinstance(value, Dispatcher):
                waiting.append(value.py_func)
            elif isinstance(value, int | float | str | tuple | np.generic):
                constants.add(f"{name} {value}")
    return [Path(path).read_bytes() for path in sorted(found)] + [
        constant.encode() for constant in sorted(constants)
    ]


@cache
def _twin(function: Any, kinds: tuple[type, ...], allocates: bool) -> Any:
    if function in _PRIMITIVES:
        return _PRIMITIVES[function]
    laid_out = not (allocates or hasattr(function, "apart"))
    if hasattr(function, "registry"):
        versions = function.registry
        function = next((versions[kind] for kind in kinds if kind in versions), versions[object])
    bound = {"__name__": function.__module__}
    called = {step.argval for step in get_instructions(function) if step.opname == "LOAD_GLOBAL"}
    for name in called & set(function.__globals__):
        value = function.__globals__[name]
        ours = isinstance(value, FunctionType) and value.__module__.startswith("fedres.")
        bound[name] = _twin(value, kinds, allocates) if ours else value
    options = INNER | {"_nrt": allocates}
    twin = FunctionType(function.__code__, bound)
    line = f"{function.__qualname__}-{function.__code__.co_firstlineno}"
    twin.__qualname__ = "-".join((line, *(kind.__qualname__ for kind in kinds)))
    return njit(forceinline=laid_out, **options)(twin)


def _instead_of(primitive: Callable[..., Any]) -> Any:
    """Compile this where the primitive is called."""

    def register(function: Callable[..., Any]) -> Any:
        _PRIMITIVES[primitive] = njit(forceinline=True, **INNER)(function)
        return function

    return register


class _Lanes:
    """Vectors of `LANES` numbers; what is left over at the end of an array in shorter ones."""

    short, long = ir.IntType(32), ir.IntType(64)

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.builder = context, builder

    def begin(self, kind: Any, array: Any, at: Any) -> Any:
        """Where element `at` of an array is."""
        data = self.context.make_array(kind)(self.context, self.builder, array).data
        return self.builder.gep(data, [at])

    def in_full(self, first: Any, n: Any, body: Callable[[Any, int], None]) -> Any:
        """Call `body` with place and width of each full vector; where what is left begins."""
        step = ir.Constant(self.long, LANES)
        full = self.builder.and_(n, ir.Constant(self.long, -LANES))
        with cgutils.for_range_slice(self.builder, first, full, step, inc=True) as (at, _):
            body(at, LANES)
        return full

    def in_part(self, n: Any, place: Any, width: int, body: Callable[[Any, int], None]) -> Any:
        """The same of one shorter vector, if there is one."""
        part = self.builder.and_(n, ir.Constant(self.long, width))
        with self.builder.if_then(self.builder.icmp_signed("!=", part, ir.Constant(self.long, 0))):
            body(place, width)
        return self.builder.add(place, part)

    def vector(self, width: int) -> Any:
        """The type of a vector; of one number, that of the number."""
        return ir.VectorType(ir.FloatType(), width) if width > 1 else ir.FloatType()

    def at(self, start: Any, place: Any, width: int) -> Any:
        """Where the vector at that place is."""
        place = self.builder.gep(start, [place])
        return self.builder.bitcast(place, self.vector(width).as_pointer())

    def load(self, start: Any, place: Any, width: int) -> Any:
        """The vector at that place."""
        return self.builder.load(self.at(start, place, width), align=4)

    def everywhere(self, number: Any, width: int) -> Any:
        """One number in all lanes."""
        if width == 1:
            return number
        empty = ir.Constant(self.vector(width), ir.Undefined)
        one = self.builder.insert_element(empty, number, ir.Constant(self.short, 0))
        return self.builder.shuffle_vector(one, empty, self._places([0] * width))

    def halved(self, vector: Any) -> Any:
        """The sum of both halves of a vector."""
        width, empty = vector.type.count // 2, ir.Constant(vector.type, ir.Undefined)
        if width == 1:
            halves = [
                self.builder.extract_element(vector, ir.Constant(self.short, k)) for k in (0, 1)
            ]
        else:
            halves = [
                self.builder.shuffle_vector(
                    vector, empty, self._places(range(first, first + width))
                )
                for first in (0, width)
            ]
        return self.builder.fadd(*halves)

    def variable(self, width: int) -> Any:
        """Room for a vector, in which there is nothing at first."""
        kind, nothing = self.vector(width), float(NOTHING)
        zero = ir.Constant(kind, [nothing] * width if width > 1 else nothing)
        return cgutils.alloca_once_value(self.builder, zero)

    def _places(self, places: Any) -> Any:
        places = list(places)
        return ir.Constant(ir.VectorType(self.short, len(places)), places)


@intrinsic  # type: ignore[untyped-decorator]
def _dot(_: Any, x: Any, a: Any, w: Any, b: Any, n: Any, more: Any) -> Any:  # noqa: ARG001
    """x[a : a + n] . w[b : b + n] + more, added as `primitives.fold` adds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, a, w, b, n, more = arguments
        lanes = _Lanes(context, builder)
        left, right = lanes.begin(signature.args[0], x, a), lanes.begin(signature.args[2], w, b)
        widths = (LANES, *SHORTER)
        sums = [lanes.variable(width) for width in widths]

        def products(place: Any, width: int) -> Any:
            return builder.fmul(lanes.load(left, place, width), lanes.load(right, place, width))

        def add(place: Any, width: int) -> None:
            total = sums[widths.index(width)]
            builder.store(builder.fadd(builder.load(total), products(place, width)), total)

        def halve(k: int) -> None:
            builder.store(lanes.halved(builder.load(sums[k])), sums[k + 1])

        none, one = ir.Constant(lanes.long, 0), ir.Constant(lanes.long, LANES)
        with builder.if_then(builder.icmp_signed(">=", n, one)):
            builder.store(products(none, LANES), sums[0])
            lanes.in_full(one, n, add)
            halve(0)
        place = builder.and_(n, ir.Constant(lanes.long, -LANES))
        for k, width in enumerate(SHORTER, 1):
            place = lanes.in_part(n, place, width, add)
            if width > 1:
                halve(k)
        return builder.fadd(builder.load(sums[-1]), more)

    return types.float32(x, types.int64, w, types.int64, types.int64, types.float32), generate


def _adapted(builder: Any, w: Any, g: Any, x: Any, slope: Any, weight: Any, rate: Any) -> Any:
    """The adaptive step along slope * x: of one number, or of a vector of them."""
    gradient, weighted = builder.fmul(slope, x), builder.fmul(slope, builder.fmul(weight, x))
    g = builder.fadd(g, builder.fmul(gradient, weighted))
    kind = "f32" if isinstance(g.type, ir.FloatType) else f"v{g.type.count}f32"
    function = ir.FunctionType(g.type, [g.type])
    square_root = cgutils.get_or_insert_function(builder.module, function, f"llvm.sqrt.{kind}")
    move = builder.fdiv(builder.fmul(rate, gradient), builder.call(square_root, [g]))
    return builder.fsub(w, move), g


@intrinsic  # type: ignore[untyped-decorator]
def _adapt(_, w, at, g, to, x, slope, weight, rate) -> Any:  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The adaptive step of one weight along slope * x."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        w, at, g, to, *numbers = arguments
        lanes = _Lanes(context, builder)
        places = lanes.begin(signature.args[0], w, at), lanes.begin(signature.args[2], g, to)
        old = [builder.load(place) for place in places]
        for new, place in zip(_adapted(builder, *old, *numbers), places, strict=True):
            builder.store(new, place)
        return context.get_dummy_value()

    single, long = types.float32, types.int64
    return types.void(w, long, g, long, single, single, single, single), generate


@intrinsic  # type: ignore[untyped-decorator]
def _adapt_all(_, w, at, g, to, x, a, n, slope, weight, rate) -> Any:  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The adaptive step of w[at : at + n] along slope * x[a : a + n]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        w, at, g, to, x, a, n, *numbers = arguments
        lanes = _Lanes(context, builder)
        weights = lanes.begin(signature.args[0], w, at)
        squares = lanes.begin(signature.args[2], g, to)
        values = lanes.begin(signature.args[4], x, a)

        def adapt(place: Any, width: int) -> None:
            old = (lanes.load(start, place, width) for start in (weights, squares, values))
            new = _adapted(builder, *old, *(lanes.everywhere(number, width) for number in numbers))
            for vector, start in zip(new, (weights, squares), strict=True):
                builder.store(vector, lanes.at(start, place, width), align=4)

        place = lanes.in_full(ir.Constant(lanes.long, 0), n, adapt)
        for width in SHORTER:
            place = lanes.in_part(n, place, width, adapt)
        return context.get_dummy_value()

    single, long = types.float32, types.int64
    return types.void(w, long, g, long, x, long, long, single, single, single), generate


@_instead_of(primitives.predict_row)
def _predict_row(models, m, view, i, row, block):  # type: ignore[no-untyped-def]
    w, start, width = models.weights, models.start[U(m)], view.width[U(i)]
    constant = models.constant[U(m)] * w[U(start + models.size[U(m)] - 1)]
    return _product(view, view.start[U(i)], width, row, w, start + block * width, constant)


@_instead_of(primitives.predict_rows)
def _predict_rows(models, m, view, i, row, block, first, last, out):  # type: ignore[no-untyped-def]
    w, start, width, begin = models.weights, models.start[U(m)], view.width[U(i)], view.start[U(i)]
    constant = models.constant[U(m)] * w[U(start + models.size[U(m)] - 1)]
    for c in range(U(first), U(last)):
        out[c] = _product(view, begin, width, row[c], w, start + block[c] * width, constant)


@njit(forceinline=True, **INNER)  # type: ignore[untyped-decorator]
def _product(view, begin, width, row, w, at, constant):  # type: ignore[no-untyped-def]
    if not view.sparse:
        return _dot(view.values, begin + row * width, w, at, width, constant)
    values, indices = view.values, view.indices
    e, last, v = U(view.indptr[U(row)]), U(view.indptr[U(row + 1)]), U(at)
    # Four lanes by hand: vectors would only gather.
    a = b = c = d = NOTHING
    begun = False
    while e + U(4) <= last:
        p = values[e] * w[v + U(indices[e])]
        q = values[e + U(1)] * w[v + U(indices[e + U(1)])]
        r = values[e + U(2)] * w[v + U(indices[e + U(2)])]
        s = values[e + U(3)] * w[v + U(indices[e + U(3)])]
        a, b, c, d = (a + p, b + q, c + r, d + s) if begun else (p, q, r, s)
        begun = True
        e += U(4)
    if e < last:
        a += values[e] * w[v + U(indices[e])]
    if e + U(1) < last:
        b += values[e + U(1)] * w[v + U(indices[e + U(1)])]
    if e + U(2) < last:
        c += values[e + U(2)] * w[v + U(indices[e + U(2)])]
    return ((a + c) + (b + d)) + constant


@_instead_of(primitives.descend_row)
def _descend_row(models, m, view, i, row, block, rate):  # type: ignore[no-untyped-def]
    w, start, width = models.weights, models.start[U(m)], view.width[U(i)]
    v = U(start + block * width)
    if view.sparse:
        for e in range(U(view.indptr[U(row)]), U(view.indptr[U(row + 1)])):
            w[v + U(view.indices[e])] -= rate * view.values[e]
    else:
        x = U(view.start[U(i)] + row * width)
        for j in range(U(width)):
            w[v + j] -= rate * view.values[x + j]
    w[U(start + models.size[U(m)] - 1)] -= rate * models.constant[U(m)]


@_instead_of(primitives.adapt_row)
def _adapt_row(models, m, view, i, row, block, slope, weight, eta):  # type: ignore[no-untyped-def]
    w, g, rate, width = models.weights, models.squares, eta * weight, view.width[U(i)]
    start, begin, last = models.start[U(m)], models.squares_start[U(m)], models.size[U(m)] - 1
    v, s = start + block * width, begin + block * width
    if view.sparse:
        for e in range(U(view.indptr[U(row)]), U(view.indptr[U(row + 1)])):
            j = view.indices[e]
            _adapt(w, v + j, g, s + j, view.values[e], slope, weight, rate)
    else:
        x = view.start[U(i)] + row * width
        _adapt_all(w, v, g, s, view.values, x, width, slope, weight, rate)
    _adapt(w, start + last, g, begin + last, models.constant[U(m)], slope, weight, rate)


@_instead_of(primitives.adapt_mean)
def _adapt_mean(models, m, view, i, rows, first, last, weight, eta, sums):  # type: ignore[no-untyped-def]
    w, g, rate, end = models.weights, models.squares, eta * weight, models.size[U(m)] - 1
    v, s, bias = models.start[U(m)], models.squares_start[U(m)], U(sums.shape[0] - 1)
    share, width = np.float32(1) / np.float32(last - first), view.width[U(i)]
    if view.sparse:
        for q in range(first, last):
            row = rows[U(q)]
            for e in range(U(view.indptr[U(row)]), U(view.indptr[U(row + 1)])):
                # A column met a second time finds its sum spent, and rests.
                j = view.indices[e]
                _adapt(w, v + j, g, s + j, sums[U(j)], share, weight, rate)
                sums[U(j)] = np.float32(0)
    else:
        _adapt_all(w, v, g, s, sums, 0, width, share, weight, rate)
        for j in range(U(width)):
            sums[j] = np.float32(0)
    _adapt(w, v + end, g, s + end, sums[bias], share, weight, rate)
    sums[bias] = np.float32(0)


@_instead_of(primitives.add_to_sums)
def _add_to_sums(sums, constant, view, i, row, slope):  # type: ignore[no-untyped-def]
    if view.sparse:
        for e in range(U(view.indptr[U(row)]), U(view.indptr[U(row + 1)])):
            sums[U(view.indices[e])] += slope * view.values[e]
    else:
        x = U(view.start[U(i)] + row * view.width[U(i)])
        for j in range(U(view.width[U(i)])):
            sums[j] += slope * view.values[x + j]
    sums[U(sums.shape[0] - 1)] += slope * constant


@_instead_of(primitives.project)
def _project(models, m, radius):  # type: ignore[no-untyped-def]
    w, start, size = models.weights, models.start[U(m)], models.size[U(m)]
    square: Any = _dot(w, start, w, start, size, np.float32(0))
    if square > radius * radius:
        shrink = radius / np.sqrt(square)
        for j in range(U(start), U(start + size)):
            w[j] *= shrink


@_instead_of(primitives.copy_model)
def _copy_model(models, of, to):  # type: ignore[no-untyped-def]
    w, first, second = models.weights, U(models.start[U(of)]), U(models.start[U(to)])
    for j in range(U(models.size[U(of)])):
        w[second + j] = w[first + j]
    models.low[U(to)], models.high[U(to)] = models.low[U(of)], models.high[U(of)]


@_instead_of(primitives.add_scaled)
def _add_scaled(to, scale, x):  # type: ignore[no-untyped-def]
    for j in range(U(to.shape[0])):
        to[j] += scale * x[j]


@_instead_of(primitives.add_square)
def _add_square(to, scale, x, first):  # type: ignore[no-untyped-def]
    size = U(x.shape[0])
    for a in range(U(first), size):
        scaled = scale * x[a]
        for b in range(a, size):
            to[a, b] += scaled * x[b]
