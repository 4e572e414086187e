"""Pickles are read as plain data, and what is more than that is refused before it runs."""

import contextlib
import copyreg
import functools
import io
import os
import pickle
import struct

import numpy as np
import pytest
from helpers import Call, same

from pdcc.errors import PairDataError, UnsafeFileError
from pdcc.experiments.paper import restricted_unpickle
from pdcc.experiments.paper.restricted_unpickle import read_pickle


def read(tmp_path, data):
    path = tmp_path / "file.pkl"
    path.write_bytes(data)
    return read_pickle(path)


# ---- pickles: plain data comes through

PLAIN = {
    "ind_pairs": [(np.int64(3), np.int64(5)), (np.int64(0), np.int64(1))],
    "label_pairs": np.array([0, 1], np.float32),
    "X": np.arange(6.0).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "axes moved": np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
    "strided": np.arange(10)[::2],
    "big-endian": np.arange(3, dtype=">f8"),
    "bool": np.array([True, False]),
    "text": np.array(["ab", "ç"]),
    "bytes": np.array([b"x"]),
    "complex": np.array([1j]),
    "empty": np.zeros((0, 4)),
    "no axes": np.array(3),
    "scalars": (np.float32(2), np.bool_(True), np.str_("hi")),
    "dtype": np.dtype(">i4"),
    "plain": [None, True, 1.5, 2**200, -7, "é", b"\xff\x00", b"", {1: ()}],
}


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_of_every_protocol_comes_through(tmp_path, protocol):
    found = read(tmp_path, pickle.dumps(PLAIN, protocol=protocol))
    same(found, PLAIN)
    found["X"][0, 0] = -1.0  # writable


def test_numpy_1_and_python_2_pickles_are_read(tmp_path):
    now = pickle.dumps(PLAIN["X"], protocol=2)
    old = now.replace(b"numpy._core.", b"numpy.core.")
    assert b"numpy.core.multiarray" in old
    same(read(tmp_path, old), PLAIN["X"])
    python_2 = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R"
        b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x18"
        + np.array([1, -1, 300], "<i8").tobytes()
        + b"tb."
    )
    assert read(tmp_path, python_2).tolist() == [1, -1, 300]


def test_shared_parts_stay_shared_and_cost_nothing(tmp_path):
    laughs = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    array = np.arange(4)
    found = read(tmp_path, pickle.dumps({"laughs": laughs, "twice": [array, array]}))
    assert found["laughs"][0] is found["laughs"][1]
    assert found["twice"][0] is found["twice"][1]


# ---- pickles: nothing runs


def text(value):
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def called(module, name, *arguments):
    """A pickle that calls module.name, whether or not it can be reached from here by that name."""
    return b"\x80\x04" + text(module) + text(name) + b"\x93(" + b"".join(map(text, arguments)) + b"tR."


def evil_array(path, command):
    inside = io.BytesIO()
    np.save(inside, np.array([Call(os.system, command)], dtype=object), allow_pickle=True)
    path.write_bytes(inside.getvalue())
    return str(path)


ATTACKS = {
    "os.system": (lambda s, d: pickle.dumps(Call(os.system, f"touch {s}")), "posix.system"),
    "eval": (lambda s, d: pickle.dumps(Call(eval, f"open({str(s)!r}, 'w').close()")), "builtins.eval"),
    "exec, protocol 0": (lambda s, d: pickle.dumps(Call(exec, f"open({str(s)!r}, 'w').close()"), 0), "__builtin__.exec"),
    "deep inside": (lambda s, d: pickle.dumps({"X": [1, (2, Call(os.system, f"touch {s}"))]}), "posix.system"),
    "partial": (
        lambda s, d: pickle.dumps(Call(functools.partial(os.system, f"touch {s}"))),
        "functools.partial",
    ),
    "dotted name": (lambda s, d: called("os", "path.os.system", f"touch {s}"), "os.path.os.system"),
    "dotted name under numpy": (
        lambda s, d: called("numpy", "f2py.os.system", f"touch {s}"),
        "numpy.f2py.os.system",
    ),
    "getattr": (
        lambda s, d: (
            b"\x80\x04" + text("builtins") + text("getattr") + b"\x93" + text("os") + text("path") + b"\x93"
            + text("os") + b"\x86R0" + called("os", "system", f"touch {s}")[2:]
        ),
        "builtins.getattr",
    ),
    "numpy.load": (
        lambda s, d: (
            b"\x80\x04cnumpy\nload\n(" + text(evil_array(d / "evil.npy", f"touch {s}")) + b"N\x88tR."
        ),
        "numpy.load",
    ),
    "numpy.testing": (
        lambda s, d: (
            b"\x80\x04cnumpy.testing._private.utils\nrunstring\n(" + text(f"open({str(s)!r}, 'w').close()") + b"}tR."
        ),
        "numpy.testing._private.utils.runstring",
    ),
    "numpy.f2py": (
        lambda s, d: called("numpy.f2py.crackfortran", "myeval", f"open({str(s)!r}, 'w').close()"),
        "numpy.f2py.crackfortran.myeval",
    ),
    "INST": (lambda s, d: b"(S'touch %s'\nios\nsystem\n." % str(s).encode(), "os.system"),
    "OBJ": (lambda s, d: b"(cos\nsystem\nS'touch %s'\no." % str(s).encode(), "os.system"),
    "copyreg": (
        lambda s, d: (
            b"\x80\x04ccopyreg\n__newobj__\n(csubprocess\nPopen\ntR0" + called("os", "system", f"touch {s}")[2:]
        ),
        "copyreg.__newobj__",
    ),
    "NEWOBJ": (
        lambda s, d: b"\x80\x04csubprocess\nPopen\n)\x810" + called("os", "system", f"touch {s}")[2:],
        "subprocess.Popen",
    ),
    "object array": (
        lambda s, d: pickle.dumps(np.array([Call(os.system, f"touch {s}")], dtype=object)),
        "dtype 'O8'",
    ),
    "object scalar": (
        lambda s, d: pickle.dumps([np.dtype(object), Call(os.system, f"touch {s}")]),
        "dtype 'O8'",
    ),
    "extension code": (lambda s, d: b"\x80\x04\x82\xf0(" + text(f"touch {s}") + b"tR.", "the step EXT1"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_payload_that_pickle_runs_is_named_and_not_run(tmp_path, monkeypatch, attack):
    make, name = ATTACKS[attack]
    sentinel = tmp_path / "sentinel"
    # An extension that some library has registered and used: its object is fetched without find_class.
    monkeypatch.setitem(copyreg._extension_cache, 0xF0, os.system)
    monkeypatch.setitem(copyreg._inverted_registry, 0xF0, ("os", "system"))
    data = make(sentinel, tmp_path)
    with contextlib.suppress(ValueError):  # myeval, after the deed
        pickle.loads(data)
    assert sentinel.exists(), "the payload must be live, or the test proves nothing"
    sentinel.unlink()
    with pytest.raises(UnsafeFileError, match=name.replace(".", r"\.")) as caught:
        read(tmp_path, data)
    assert not sentinel.exists()
    assert isinstance(caught.value, PairDataError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\x80\x04Pname\n.", "persistent id, PERSID 'name'"),
        (b"\x80\x04K\x01Q.", "persistent id, BINPERSID"),
        (b"\x80\x04cnumpy\nmatrix\n.", "numpy.matrix"),
        (pickle.dumps(np.ma.array([1])), "numpy.ma.core._mareconstruct"),
        (pickle.dumps(np.ndarray), "numpy.ndarray"),
        (pickle.dumps(np.float64), "numpy.float64"),
        (pickle.dumps(np.zeros(2, [("a", "f8")])), "dtype 'V8'"),
        (pickle.dumps(np.array(["2020"], "M8[D]")), "dtype 'M8'"),
        (pickle.dumps({1, 2}), "a set"),
        (pickle.dumps(bytearray(b"x"), protocol=5), "a bytearray"),
        (pickle.dumps(1j), "builtins.complex"),
        (b"\x80\x04cnumpy\ndtype\n}X\x04\x00\x00\x00nameK\x01sb.", "a change to numpy.dtype"),
        (b"\x80\x04cnumpy\nndarray\n(J\xff\xff\xff\x7ftR.", "a call of numpy.ndarray"),
        (b"\x80\x02c__builtin__\nbytes\n(J\xff\xff\xff\x7ftR.", "a call of bytes"),
        (b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00xX\x05\x00\x00\x00rot13tR.", "_codecs.encode"),
    ],
)
def test_what_is_not_plain_data_is_refused_by_name(tmp_path, data, name):
    with pytest.raises(UnsafeFileError) as caught:
        read(tmp_path, data)
    assert name in str(caught.value)


def with_state(code, state):
    """An array of one float64 whose dtype has the code and state of your choice."""
    shell = Call(np.ndarray, (0,))
    kind = Call(np.dtype, code, False, True)
    kind.parts = (*kind.parts, state)
    shell.parts = (np.zeros(1).__reduce__()[0], (np.ndarray, (0,), b"b"), (1, (1,), kind, False, b"\1" * 8))
    return pickle.dumps(shell)


def test_a_dtype_is_what_its_code_says_whatever_its_flags(tmp_path):
    # numpy itself would take this float64 for an array of pointers.
    found = read(tmp_path, with_state("f8", (3, "<", None, None, None, -1, -1, 63)))
    assert found.dtype.flags == 0
    assert not found.dtype.hasobject
    same(found, np.frombuffer(b"\1" * 8))
    for lie in (
        (3, "<", None, None, None, 64, -1, 0),
        (3, "|", None, ("a",), {"a": (np.dtype("f8"), 1000)}, 8, 1, 0),
        (3, "|", (np.dtype("u1"), (8,)), None, None, 8, 1, 0),
    ):
        with pytest.raises(UnsafeFileError, match="contradicts itself"):
            read(tmp_path, with_state("f8", lie))


def test_bombs_are_refused_before_they_swell(tmp_path, monkeypatch):
    with pytest.raises(UnsafeFileError, match="memo entry"):
        read(tmp_path, b"\x80\x02Nr\xff\xff\xff\x7f.")
    again = b"h\x00h\x01X\x06\x00\x00\x00latin1\x86R0" * 30
    many = b"\x80\x02c_codecs\nencode\nq\x00" + text("x" * 100_000) + b"q\x01" + again + b"N."
    with pytest.raises(UnsafeFileError, match="over and over"):
        read(tmp_path, many)
    huge = pickle.dumps(np.zeros(1), protocol=2).replace(b"K\x01K\x01\x85", b"K\x01J\xff\xff\xff\x7f\x85")
    with pytest.raises(PairDataError, match="8 bytes for an array of shape"):
        read(tmp_path, huge)
    monkeypatch.setattr(restricted_unpickle, "MAX_STEPS", 100)
    with pytest.raises(UnsafeFileError, match="more than 100 steps"):
        read(tmp_path, b"\x80\x02" + b"]" * 200 + b".")


def test_long_files_are_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "long.pkl"
    path.touch()
    os.truncate(path, restricted_unpickle.MAX_BYTES + 1)
    monkeypatch.setattr("pathlib.Path.open", lambda *a: pytest.fail("opened"))
    with pytest.raises(PairDataError, match="at most 1073741824 bytes, found 1073741825"):
        read_pickle(path)


def test_containers_inside_themselves_or_too_deep_are_refused(tmp_path):
    loop = []
    loop.append({"again": loop})
    with pytest.raises(UnsafeFileError, match="a list inside itself"):
        read(tmp_path, pickle.dumps(loop))
    with pytest.raises(UnsafeFileError, match="more than 100 containers"):
        read(tmp_path, b"]" * 5000 + b"a" * 4999 + b".")


def test_damaged_files_give_one_kind_of_error(tmp_path):
    with pytest.raises(PairDataError, match="none there"):
        read_pickle(tmp_path / "nowhere.pkl")
    whole = pickle.dumps({"X": np.arange(3.0), "n": [1, "two"]}, protocol=4)
    for cut in range(len(whole)):
        with pytest.raises(PairDataError, match="damaged"):
            read(tmp_path, whole[:cut])
    with pytest.raises(PairDataError, match="4 bytes after its end"):
        read(tmp_path, whole + b"more")
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for where in rng.integers(len(whole), size=rng.integers(1, 4)):
            damaged[where] = rng.integers(256)
        try:
            read(tmp_path, bytes(damaged))
        except PairDataError:
            refused += 1
    assert refused > 100
    with pytest.raises(PairDataError):
        read(tmp_path, rng.bytes(1000))


DEEP = 500_000


@pytest.mark.parametrize(
    "nested",
    [
        b")" + b"\x85" * DEEP,  # TUPLE1 of TUPLE1 ...
        b"(" * DEEP + b"t" * DEEP,  # marks first
        b")" + b"\x94h\x00\x86" * 2 + b"\x85" * DEEP,  # through the memo
        b")" + b"K\x01\x86" * DEEP,
    ],
    ids=["one", "marks", "memo", "two"],
)
def test_deep_tuples_are_refused_before_they_are_made(tmp_path, nested):
    """As a key such a tuple is hashed, and hashing it overruns the stack: Python ends, and no exception can be caught."""
    for data in (b"\x80\x04" + nested + b".", b"\x80\x04}" + nested + b"K\x01s."):
        with pytest.raises(UnsafeFileError, match="tuples in one another"):
            read(tmp_path, data)


def test_shallow_tuples_and_long_lists_of_them_are_read(tmp_path):
    value = {(1, (2, (3, "x"))): [(k, (k, k)) for k in range(1000)], "t": tuple((k,) for k in range(50))}
    for protocol in range(6):
        assert read(tmp_path, pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("code", ["U0", "S0"])
def test_strings_of_no_length_claim_no_memory(tmp_path, code):
    """numpy makes room for one character in each of them: a file of a hundred bytes would take gigabytes."""
    good = pickle.dumps(np.zeros(3, "S7"), 2)
    data = good.replace(b"S7", code.encode()).replace(b"\x00" * 21, b"")
    with pytest.raises((UnsafeFileError, PairDataError)):
        read(tmp_path, data)
    direct = (
        b"\x80\x02cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\x02\x00\x00\x00"
        + code.encode()
        + b"K\x00K\x01\x87RU\x00\x86R."
    )
    with pytest.raises(UnsafeFileError, match=code):
        read(tmp_path, direct)
