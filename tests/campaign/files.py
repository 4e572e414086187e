"""Damaged and hostile files: features, pairs, pickles and runs, by the readers and by the command line."""

import io
import os
import pickle
import shutil
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse

from campaign.inputs import sound
from campaign.odd import SCALARS, K, N, Rng, good, pick
from campaign.tally import Tally
from pdcc import PairData, VolMaxDCC
from pdcc.cli import main
from pdcc.experiments.paper.restricted_unpickle import read_pickle
from pdcc.storage.model import load_run, save_run

CODES = (0, 2)


def damaged(content: bytes, rng: Rng) -> bytes:
    """The bytes with something wrong: a few flipped, cut off, repeated, replaced, or others altogether."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        size = max(len(data), 1)
        a, b = sorted(int(v) for v in rng.integers(size + 1, size=2))
        way = int(rng.integers(8))
        if way <= 2 and data:
            for place in rng.integers(size, size=int(rng.integers(1, 6))):
                data[int(place)] = int(rng.integers(256))
        elif way == 3:
            del data[a:]
        elif way == 4:
            data[a:a] = data[a:b][:200]
        elif way == 5:
            del data[a : a + int(rng.integers(1, 9))]
        elif way == 6:
            data[a : a + 4] = pick(
                rng, [b"\xff\xff\xff\xff", b"9999", b"\0\0\0\0", b"-1,,", b"nan ", b"\n\n\"'", b"\xf0\x9f\x98\x80"]
            )
        else:
            digits = [k for k, c in enumerate(data[:400]) if 48 <= c <= 57]
            if digits:
                data[pick(rng, digits)] = int(rng.integers(48, 58))
    return bytes(data)


@cache
def _tables() -> dict[str, bytes]:
    """Whole files of good data, by ending; "pairs.csv" and "pairs.parquet" hold the answers."""
    X, pairs, similar, people = good(np.random.default_rng(0))
    out: dict[str, bytes] = {}
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    answers = pd.DataFrame({"i": pairs[:, 0], "j": pairs[:, 1], "similar": similar.astype(int), "annotator": people})
    writers: dict[str, Callable[[Any], Any]] = {
        "x.npy": lambda f: np.save(f, X), "x.npz": lambda f: np.savez(f, X=X), "y.npz": lambda f: np.savez_compressed(f, X=X), "s.npz": lambda f: sparse.save_npz(f, sparse.csr_matrix(X)),
        "x.csv": lambda f: f.write(frame.to_csv(index=False).encode()), "pairs.csv": lambda f: f.write(answers.to_csv(index=False).encode()),
    }  # fmt: skip
    try:
        import pyarrow  # noqa: F401

        writers["x.parquet"] = lambda f: f.write(frame.to_parquet())
        writers["pairs.parquet"] = lambda f: f.write(answers.to_parquet())
    except ImportError:
        pass
    for name, write in writers.items():
        file = io.BytesIO()
        write(file)
        out[name] = file.getvalue()
    return out


def tables(rng: Rng, home: Path) -> str | None:
    """A damaged file of features or of pairs, the other one whole."""
    whole = _tables()
    bad = pick(rng, list(whole))
    x = bad if not bad.startswith("pairs") else "x.npy"
    pairs = bad if bad.startswith("pairs") else "pairs.csv"
    for name in (x, pairs):
        (home / name).write_bytes(damaged(whole[name], rng) if name == bad else whole[name])
    if rng.random() < 0.05:  # the wrong ending
        x = Path(x).stem + pick(rng, [".npy", ".npz", ".csv", ".parquet", ".txt", ""])
        (home / x).write_bytes(whole[bad])
    data = PairData.read(home / x, home / pairs)
    return None if np.isfinite(data.features).all() and data.i.max() < data.n_items else "odd data"


class Canary:
    """A pickle that runs a command when it is loaded as pickles are."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def pickles(rng: Rng, home: Path) -> str | None:
    canary, file = home / "exploded", home / "file.pkl"
    X, pairs, similar, _ = good(rng)
    protocol = int(rng.integers(6))
    plain = {"X": X, "pairs": [tuple(p) for p in pairs], "similar": similar, "more": [1, 2.5, "text", None, b"x"]}
    hostile = pick(rng, [plain, Canary(canary), {"X": X, "more": [Canary(canary)]}, (Canary(canary),) * 3, {"key": eval}, [np.dtype("O")], np.array([object()]), _deep(rng)])  # fmt: skip
    content = _dumped(hostile, protocol)
    file.write_bytes(content if rng.random() < 0.3 else damaged(content, rng))
    try:
        read_pickle(file)
    finally:
        if canary.exists():
            canary.unlink()
            return "CODE FROM A FILE WAS RUN"  # noqa: B012
    return None


def _deep(rng: Rng) -> Any:
    value: Any = ()
    for _ in range(int(rng.integers(2, 400))):
        value = pick(rng, [(value,), [value], {"k": value}])
    return value


def _dumped(value: Any, protocol: int) -> bytes:
    try:
        return pickle.dumps(value, protocol=protocol)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return pickle.dumps([1, 2], protocol=protocol)


@cache
def _run(home: Path) -> Path:
    """A finished run, made by the command line."""
    for name in ("x.npy", "pairs.csv"):
        (home / name).write_bytes(_tables()[name])
    command = ["-q", "fit", home / "x.npy", home / "pairs.csv", "-k", K, "-o", home / "run", "--epochs", 1, "--init", "kmeans", "--scale", "standard", "--confusion", "stochastic", "--volume", "0"]  # fmt: skip
    code, said = command_line([str(c) for c in command])
    assert code == 0, said
    return home / "run"


def command_line(arguments: list[str]) -> tuple[int, str]:
    """Exit code and all that is said; what is not an exit goes on up."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main(arguments)
        except SystemExit as stop:
            return int(stop.code or 0), said.getvalue()
    return 0, said.getvalue()


def runs(rng: Rng, home: Path) -> str | None:
    """A run with damaged bytes: refused, or what was fitted comes back."""
    whole = _run(home)
    copy = home / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    file = pick(rng, sorted(copy.iterdir()))
    before = file.read_bytes()
    file.write_bytes(damaged(before, rng) if rng.random() < 0.9 else b"")
    if rng.random() < 0.05:
        file.unlink()
    found, was = VolMaxDCC.load(copy), VolMaxDCC.load(whole)
    X = np.load(home / "x.npy")
    same = np.array_equal(found.memberships_, was.memberships_)
    same = same and np.array_equal(found.predict_proba(X), was.predict_proba(X))
    return None if same else "an altered run was loaded as if nothing had happened"


def forged(rng: Rng, home: Path) -> str | None:
    """A run whose description says something else, with every hash right: refused, or it holds together."""
    whole = _run(home)
    copy = home / "forged"
    shutil.rmtree(copy, ignore_errors=True)
    tensors, body = load_run(whole)
    body = {k: v for k, v in body.items() if k not in ("versions", "files", "description_sha256", "format")}
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.3:
            name = pick(rng, sorted(tensors))
            value = tensors[name]
            change = pick(rng, ["drop", "nan", "grow", "int", "scale"])
            if change == "drop":
                tensors = {k: v for k, v in tensors.items() if k != name}
            elif change == "nan":
                tensors[name] = value * float("nan") if value.is_floating_point() else value
            elif change == "grow":
                tensors[name] = torch.cat([value, value]) if value.dim() else value.reshape(1)
            elif change == "int":
                tensors[name] = value.int()
            else:
                tensors[name] = value * 1e30
        else:
            body = _mutated(body, rng)
    save_run(copy, tensors, body)
    est = VolMaxDCC.load(copy)
    X = np.load(home / "x.npy")
    return sound(est.memberships_, N) or sound(est.predict_proba(X), N)


def _mutated(body: Any, rng: Rng) -> Any:
    """JSON with one value somewhere replaced or left out."""
    if isinstance(body, dict) and body and rng.random() < 0.85:
        key = pick(rng, sorted(body))
        if rng.random() < 0.15:
            return {k: v for k, v in body.items() if k != key}
        return body | {key: _mutated(body[key], rng)}
    if isinstance(body, list) and body and rng.random() < 0.6:
        k = int(rng.integers(len(body)))
        return [*body[:k], _mutated(body[k], rng), *body[k + 1 :]]
    return pick(
        rng,
        [
            None,
            True,
            -1,
            0,
            3,
            10**6,
            1.5,
            "x",
            "",
            [],
            {},
            [1, 2],
            {"a": 1},
            "auto",
            "own",
            "../x",
            1e300,
            [[]],
            "\u202e",
        ],
    )


def commands(rng: Rng, home: Path) -> str | None:
    """Odd command lines: an exit code that is documented, one sentence, no traceback, no escape sequence."""
    run = _run(home)
    out = home / "out"
    texts = [str(v) for v in SCALARS if isinstance(v, int | float | str | bytes)]
    odd = pick(rng, [*texts, "\x1b[2J", str(home), str(home / "none"), "", "-", "--", "3", "/dev/null", "\u202e"])
    x, pairs = str(home / "x.npy"), str(home / "pairs.csv")
    if rng.random() < 0.4:
        name = pick(rng, [n for n in _tables() if not n.startswith("pairs")])
        x = str(home / f"bad-{name}")
        Path(x).write_bytes(damaged(_tables()[name], rng))
    fast = ["--epochs", "1", "--init", "kmeans", "--scale", "standard", "--confusion", "stochastic", "--volume", "0"]
    flag = pick(rng, ["-k", "-o", "--seed", "--epochs", "--confusion", "--volume", "--scale", "--init", "--n-init", "--device", "--id-column", "--nonsense"])  # fmt: skip
    lines: list[Callable[[], list[str]]] = [
        lambda: ["fit", x, pairs, "-k", "3", "-o", str(out), *fast, flag, odd if odd != "1000000000.0" else "3"],
        lambda: ["fit", pick(rng, [x, odd]), pick(rng, [pairs, odd]), "-k", "3", "-o", str(out), *fast, *pick(rng, [[], ["--resume"], ["--overwrite"]])],
        lambda: ["predict", str(run), x, "-o", str(home / "m.csv"), *pick(rng, [[], ["--safe-csv"], ["--id-column", odd]])],
        lambda: ["predict", pick(rng, [str(run), odd]), pick(rng, [x, odd]), "-o", pick(rng, [str(home / "m.csv"), str(run / "run.json"), str(home), x])],
        lambda: ["diagnose", pick(rng, [odd, str(home)]), *pick(rng, [[], ["--draws", odd], ["--eps", odd]])],
        lambda: ["simulate", odd, "-o", str(out)], lambda: ["bench", pick(rng, [odd, "nonsense"]), "-o", str(out)], lambda: [odd, x], lambda: ["fit"],
    ]  # fmt: skip
    arguments = pick(rng, lines)()
    before = os.getcwd()
    os.chdir(home)
    try:
        code, said = command_line(arguments)
    except Exception:
        return f"an exception left the command line {arguments}: {traceback.format_exc()}"
    finally:
        os.chdir(before)
        for left in (out, Path(odd) if odd and "/" not in odd and len(odd) < 100 and odd not in (".", "..") else out):
            if (home / left).is_dir() and (home / left) != run:
                shutil.rmtree(home / left)
    if code not in CODES:
        return f"exit code {code} of {arguments}: {said[-800:]}"
    if "Traceback" in said or "\x1b" in said:
        return f"a traceback or an escape sequence from {arguments}: {said[-800:]}"
    if code == 2 and not said.strip():
        return f"no word about what is wrong with {arguments}"
    return None


KINDS: dict[str, tuple[Callable[[Rng, Path], str | None], int]] = {
    "damaged features and pairs": (tables, 2500), "hostile pickles": (pickles, 500), "damaged runs": (runs, 300), "forged runs": (forged, 400),
    "command lines": (commands, 400),
}  # fmt: skip


def run(tally: Tally, seed: int, share: float, home: Path) -> None:
    """A ``share`` of all attempts."""
    for number, (kind, (make, count)) in enumerate(KINDS.items()):
        for k in range(max(1, round(share * count))):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                tally.attempt(kind, k, lambda: make(np.random.default_rng([seed, 100 + number, k]), home))  # noqa: B023
