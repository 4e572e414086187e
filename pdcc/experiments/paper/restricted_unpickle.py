"""Data out of pickle files, without the file's code.

A pickle is a program that may call whatever it names. Here it may name only what plain numpy data needs, by exact module
and name, and even then it is handed a stand-in of ours, never numpy's own callable or any class: ``dtype.__setstate__``
believes the file's flags (float64 that says it holds objects: numbers become pointers), ``ndarray`` the file's sizes.

Admitted: dict, list, tuple, str, bytes, int, float, bool, None; numpy arrays, scalars and dtypes of bool, integer, float,
complex, S and U kind. Refused: everything else, among it object arrays, records, sets and containers inside themselves.
Tuples in tuples are counted before anything is loaded: hashing a deep one (as a key) would overrun the stack and end Python.
A hostile file can still waste time (with keys that are slow to hash), but not memory.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdcc.errors import PairDataError, UnsafeFileError
from pdcc.experiments.paper.pieces import whole_bytes

MAX_BYTES = 1 << 30  # the paper's largest features, 60,000 x 2048 float32, take half of it
MAX_STEPS = 5_000_000  # a step may allocate some 100 bytes
MAX_DEPTH = 100

# Persistent ids and extension codes reach objects past ``find_class``; buffers are not in the file. The steps that make
# instances (NEWOBJ and the like) are here, so that the class they ask for gets named: it is refused when it is looked up.
_STEPS = frozenset(
    """PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT
    BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES
    BINBYTES8 BYTEARRAY8 EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM
    SETITEMS GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL
    REDUCE BUILD INST OBJ NEWOBJ NEWOBJ_EX""".split()
)
_DTYPE = re.compile(r"b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SU][1-9]\d{0,5}")


class _Refused(Exception):
    """What the file asked for."""


def read_pickle(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Any:
    """The plain data in a pickle file of any protocol, or in its pieces; arrays come back as writable copies.

    Raises ``UnsafeFileError`` for a file that holds more than plain data, ``PairDataError`` for one that is missing,
    damaged or longer than ``max_bytes``, or that lacks a piece.
    """
    path = Path(path)
    data = whole_bytes(path, max_bytes)
    try:
        _scan(data)
        return _plain(_Reader(data).load(), {}, 0)
    except _Refused as refusal:
        raise UnsafeFileError(
            str(path),
            "numbers, text, lists and numpy arrays alone",
            f"{refusal}, which was not run",
            "Have the arrays saved with np.savez, by someone you trust.",
        ) from None
    except Exception as error:  # a damaged file can make the unpickler raise almost anything
        raise PairDataError(
            str(path), "a complete pickle file", f"a damaged one ({error})", "Download or write it again."
        ) from error


def _scan(data: bytes) -> None:
    """Look at every step before any is taken: a few bytes can ask for a memo, or a buffer, of any size."""
    count, end, stack = 0, 0, _Depths()
    for opcode, argument, position in pickletools.genops(data):
        count, end = count + 1, (position or 0) + 1
        if opcode.name not in _STEPS:
            if opcode.name in ("EMPTY_SET", "ADDITEMS", "FROZENSET"):
                raise _Refused("a set")
            what = "a persistent id," if "PERSID" in opcode.name else "the step"
            raise _Refused(f"{what} {opcode.name} {_short(argument)}")
        if count > MAX_STEPS:
            raise _Refused(f"more than {MAX_STEPS} steps")
        if "PUT" in opcode.name and argument is not None and not 0 <= argument <= MAX_STEPS:
            raise _Refused("a memo entry beyond any the file can fill")
        stack.take(opcode, argument)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes after its end")


class _Depths:
    """What the unpickler's stack will hold: for each value, how many tuples are in one another there; None for a mark."""

    def __init__(self) -> None:
        self._stack: list[int | None] = []
        self._memo: dict[int, int] = {}

    def take(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        """One step. Raises ``IndexError`` where the unpickler would find too little on its stack."""
        name = opcode.name
        if "PUT" in name or name == "MEMOIZE":
            self._memo[len(self._memo) if name == "MEMOIZE" else int(argument)] = self._stack[-1] or 0
        elif "GET" in name:
            self._stack.append(self._memo.get(int(argument), 0))
        elif name == "DUP":
            self._stack.append(self._stack[-1])
        elif name == "MARK":
            self._stack.append(None)
        else:
            taken = self._taken(opcode)
            depth = 1 + max(taken, default=0) if "TUPLE" in name else 0
            if depth > MAX_DEPTH:
                raise _Refused(f"more than {MAX_DEPTH} tuples in one another")
            kept = taken[:1] if name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD") else [depth]
            self._stack += kept if opcode.stack_after else []

    def _taken(self, opcode: pickletools.OpcodeInfo) -> list[int]:
        """Take what a step takes off the stack: so many values, or all down to the last mark and so many below it."""
        below = len(opcode.stack_before)
        taken: list[int] = []
        if pickletools.markobject in opcode.stack_before:
            below = opcode.stack_before.index(pickletools.markobject)
            while (value := self._stack.pop()) is not None:
                taken.append(value)
        return [self._stack.pop() or 0 for _ in range(below)][::-1] + taken


class _Part:
    """Something of ours that the file may hold but not alter: BUILD would otherwise set attributes."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise _Refused(f"a change to {self}")


class _Name(_Part):
    """A name the file may use, and what calling it does."""

    __slots__ = ("_make", "_name")

    def __init__(self, name: str, make: Callable[..., Any] | None):
        self._name, self._make = name, make

    def __str__(self) -> str:
        return self._name

    def __call__(self, *arguments: object) -> Any:
        if self._make is None:
            raise _Refused(f"a call of {self}")
        return self._make(*arguments)


class _Dtype(_Part):
    """A dtype from its code ("f8") and byte order alone."""

    __slots__ = ("dtype",)

    def __init__(self, code: object, align: object = False, copy: object = False):
        if not isinstance(code, str) or not _DTYPE.fullmatch(code):
            raise _Refused(f"an array of dtype {_short(code)}")
        self.dtype: np.dtype[Any] = np.dtype(code)

    def __setstate__(self, state: object) -> None:
        _, order, subarray, names, fields, size, *_ = _tuple(state, "a dtype's state", 8, 9)
        if not (subarray is None and names is None and fields is None and size in (-1, self.dtype.itemsize)):
            raise _Refused("an array of records, or of a dtype that contradicts itself")
        if order not in ("<", ">", "|", "="):
            raise _Refused(f"byte order {_short(order)}")
        self.dtype = self.dtype.newbyteorder(order)


class _Value(_Part):
    """An array or a scalar; None until its state is in."""

    __slots__ = ("_fill", "value")

    def __init__(self, fill: Callable[..., NDArray[Any]] | None = None, value: Any = None):
        self._fill, self.value = fill, value

    def __setstate__(self, state: object) -> None:
        if self._fill is None:
            raise _Refused("a change to a scalar")
        shape, kind, fortran, raw = _tuple(state, "an array's state", 4, 5)[-4:]
        self.value = self._fill(raw, kind, shape, "F" if fortran else "C")


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes):
        super().__init__(io.BytesIO(data), encoding="latin1")  # Python 2 wrote arrays' bytes as text
        self._left = 4 * len(data) + 65536
        known: dict[str, Callable[..., Any] | None] = {
            "numpy ndarray": None,
            "numpy dtype": _Dtype,
            "_codecs encode": self._encode,  # bytes, in protocols 0 to 2
            "builtins bytes": self._no_bytes,
            "__builtin__ bytes": self._no_bytes,
        }
        for core in ("numpy.core", "numpy._core"):  # numpy 1 and 2
            known[f"{core}.multiarray _reconstruct"] = self._reconstruct
            known[f"{core}.multiarray scalar"] = self._scalar
            known[f"{core}.numeric _frombuffer"] = self._frombuffer
        self._known = {tuple(key.split()): _Name(key.replace(" ", "."), make) for key, make in known.items()}

    def find_class(self, module: str, name: str, /) -> _Name:
        if (module, name) not in self._known:
            raise _Refused(f"{module}.{name}"[:200])
        return self._known[module, name]

    def _spend(self, n_bytes: int) -> None:
        """A file may fetch one buffer from its memo and copy it again and again: not past a few times its own length."""
        self._left -= n_bytes
        if self._left < 0:
            raise _Refused("the same bytes over and over")

    def _encode(self, text: object, encoding: object) -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise _Refused("_codecs.encode of something other than latin1 text")
        self._spend(len(text))
        return text.encode("latin1")

    def _no_bytes(self, *arguments: object) -> bytes:
        if arguments:  # bytes(n) would make n of them
            raise _Refused("a call of bytes")
        return b""

    def _reconstruct(self, kind: object, shape: object, code: object) -> _Value:
        if kind is not self._known["numpy", "ndarray"]:
            raise _Refused(f"an array of class {_short(kind)}")
        return _Value(self._array)

    def _scalar(self, kind: object, raw: object) -> _Value:
        return _Value(value=self._array(raw, kind, (), "C")[()])

    def _frombuffer(self, raw: object, kind: object, shape: object, order: object, axes: object = None) -> _Value:
        if order != "K":
            return _Value(value=self._array(raw, kind, shape, order))
        return _Value(value=self._array(raw, kind, shape, "C").transpose(_lengths(axes)))

    def _array(self, raw: object, kind: object, shape: object, order: object) -> NDArray[Any]:
        if isinstance(raw, str):
            raw = raw.encode("latin1")
        if not isinstance(kind, _Dtype) or not isinstance(raw, bytes | bytearray) or order not in ("C", "F"):
            raise _Refused("an array whose dtype or contents are not plain")
        lengths, dtype = _lengths(shape), kind.dtype
        if math.prod(lengths) * dtype.itemsize != len(raw):
            raise ValueError(f"{len(raw)} bytes for an array of shape {lengths} and dtype {dtype}")
        self._spend(len(raw))
        if dtype.kind == "b":  # a byte other than 0 and 1 is no bool
            return np.ndarray(lengths, np.uint8, bytes(raw), order=order).astype(bool)
        return np.ndarray(lengths, dtype, bytes(raw), order=order).copy(order="K")


def _short(value: object) -> str:
    # Never the repr of a container: one that holds another twice, that one a third twice, and so on, has no end.
    return repr(value)[:60] if isinstance(value, str | bytes | float) else f"({type(value).__name__})"


def _tuple(state: object, what: str, *sizes: int) -> tuple[Any, ...]:
    if not isinstance(state, tuple) or len(state) not in sizes:
        raise _Refused(f"{what} of another form")
    return state


def _lengths(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise _Refused("an array whose shape is not plain")
    return shape


def _plain(value: Any, done: dict[int, Any], depth: int) -> Any:
    """``value`` with its stand-ins replaced by what they stand for; every container is visited once."""
    if value is None or type(value) in (str, bytes, int, float, bool):
        return value
    if isinstance(value, _Dtype):
        return value.dtype
    if isinstance(value, _Value) and value.value is not None:
        return value.value
    if type(value) not in (dict, list, tuple):
        raise _Refused(str(value) if isinstance(value, _Name) else f"a {type(value).__name__}")
    if depth == MAX_DEPTH:
        raise _Refused(f"more than {MAX_DEPTH} containers in one another")
    if id(value) not in done:
        done[id(value)] = _Refused  # stays so while its contents are visited
        if type(value) is dict:
            pairs = [(_plain(k, done, depth + 1), _plain(v, done, depth + 1)) for k, v in value.items()]
            done[id(value)] = dict(pairs)
        else:
            done[id(value)] = type(value)([_plain(v, done, depth + 1) for v in value])
    if done[id(value)] is _Refused:
        raise _Refused(f"a {type(value).__name__} inside itself")
    return done[id(value)]
