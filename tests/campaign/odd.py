"""Odd values: for every kind of argument what people pass by mistake, and what only a machine would think of."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse

Rng = np.random.Generator
N, D, M, K = 24, 3, 60, 3


def good(rng: Rng) -> tuple[Any, Any, Any, Any]:
    """X (N, D), pairs (M, 2), similar (M,) and annotators (M,) that nothing is wrong with."""
    y = np.arange(N) % K
    X = 4 * np.eye(K, D)[y] + rng.normal(size=(N, D))
    pairs = rng.integers(N, size=(M, 2))
    similar = (y[pairs[:, 0]] == y[pairs[:, 1]]) ^ (rng.random(M) < 0.1)
    return X, pairs, similar, rng.integers(3, size=M)


def pick(rng: Rng, options: list[Any]) -> Any:
    """One of them."""
    return options[int(rng.integers(len(options)))]


def _with(array: Any, rng: Rng, value: Any) -> Any:
    """The array with one entry replaced."""
    out = np.array(array, dtype=object if not isinstance(value, float | int | bool) or abs(value) > 1e300 else None)
    if isinstance(value, float) and out.dtype.kind in "biu":
        out = out.astype(float)
    out.flat[int(rng.integers(out.size))] = value
    return out


def _frozen(array: Any) -> Any:
    out = np.array(array)
    out.setflags(write=False)
    return out


class Strange:
    """Answers to nothing."""


class Hostile:
    """Fails when it is looked at."""

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError("no array today")

    def __repr__(self) -> str:
        return "hostile"


ANYTHING: list[Callable[[], Any]] = [
    lambda: None, lambda: [], lambda: {}, lambda: "", lambda: "text", lambda: b"bytes", lambda: 0, lambda: 1.5, lambda: float("nan"),
    lambda: True, lambda: 10**400, lambda: Strange(), lambda: Hostile(), lambda: (k for k in range(3)), lambda: range(5), lambda: {1, 2},
    lambda: np.array(3), lambda: np.empty((0, 3)), lambda: np.empty((3, 0)), lambda: np.zeros((2, 2, 2)), lambda: [[1, 2], [3]],
    lambda: [[1], ["a"]], lambda: np.array([("a", 1)], dtype="U1,i4"), lambda: np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
    lambda: np.array([[1, 2]], dtype="m8[s]"), lambda: np.array([[1 + 2j]]), lambda: pd.DataFrame(), lambda: pd.Series([1, 2]),
    lambda: torch.zeros(3, 2), lambda: torch.zeros(3, 2, device="meta"), lambda: torch.zeros(3, 2, dtype=torch.bfloat16),
    lambda: torch.eye(3).to_sparse(), lambda: torch.zeros(3, 2, requires_grad=True), lambda: sparse.csr_array(np.eye(3)),
    lambda: sparse.coo_array(np.eye(3)), lambda: Decimal("1.5"), lambda: Fraction(1, 3), lambda: np.ma.masked_array([[1.0, 2.0]], [[0, 1]]),
    lambda: np.float128(2) if hasattr(np, "float128") else 2.0, lambda: object, lambda: lambda: 1, lambda: [None], lambda: [[None, 1]],
    lambda: [10**400], lambda: [[10**400, 1]], lambda: "\ud800", lambda: "\x00", lambda: np.array(["\ud800"]), lambda: -1, lambda: 2**63,
    lambda: float("inf"), lambda: -0.0, lambda: np.int8(3), lambda: np.float16(0.5), lambda: np.array([], dtype=object), lambda: [[]],
]  # fmt: skip


def odd_features(X: Any, rng: Rng) -> Any:
    """X in another form, or spoiled."""
    ways: list[Callable[[], Any]] = [
        lambda: X.astype(np.float32), lambda: X.astype(np.float16), lambda: X.tolist(), lambda: pd.DataFrame(X), lambda: torch.tensor(X),
        lambda: sparse.csr_array(X), lambda: sparse.csc_matrix(X), lambda: np.asfortranarray(X), lambda: X[::-1], lambda: _frozen(X),
        lambda: X.astype(object), lambda: (10 * X).astype(int), lambda: X > 0, lambda: X.astype(str), lambda: X.astype(complex),
        lambda: X * 1e-300, lambda: X * 1e300, lambda: X * 1e38, lambda: X + 1e12, lambda: X * 0, lambda: X[:1], lambda: X[:, :1], lambda: X[0],
        lambda: X[None], lambda: X[:0], lambda: X[:, :0], lambda: _with(X, rng, float("nan")), lambda: _with(X, rng, float("inf")),
        lambda: _with(X, rng, 1e39), lambda: _with(X, rng, 1.7e308), lambda: _with(X, rng, "x"), lambda: _with(X, rng, None), lambda: _with(X, rng, 10**400),
        lambda: pd.DataFrame(X, columns=["a", "a", "b"]), lambda: pd.DataFrame(X, index=[f"i{k}" for k in range(N)]),
        lambda: pd.DataFrame(X).assign(c=pd.Categorical(["u", "v"] * (N // 2))), lambda: pd.DataFrame(X).assign(c=pd.array([1, None] * (N // 2), dtype="Int64")),
        lambda: pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([(0, "a"), (0, "b"), (1, "c")])), lambda: np.ma.masked_greater(X, 3),
        lambda: np.repeat(X[:1], N, 0), lambda: np.hstack([X, np.full((N, 1), 7.0)]), lambda: np.hstack([X] * 30), lambda: X.reshape(N, D, 1),
        lambda: np.nextafter(X, np.inf), lambda: np.full((N, D), 5e-324) * (X > 0), lambda: np.where(X > 3, 1e308, -1e308), lambda: X,
    ]  # fmt: skip
    return pick(rng, ways)() if rng.random() < 0.75 else pick(rng, ANYTHING)()


def odd_pairs(pairs: Any, rng: Rng) -> Any:
    """Pairs in another form, or spoiled."""
    ways: list[Callable[[], Any]] = [
        lambda: pairs.tolist(), lambda: [tuple(p) for p in pairs], lambda: pairs.astype(float), lambda: pairs.astype(np.uint8), lambda: pairs.astype(object),
        lambda: pairs.astype(str), lambda: pairs + 0.5, lambda: _with(pairs, rng, -1), lambda: _with(pairs, rng, N), lambda: _with(pairs, rng, 2**62),
        lambda: _with(pairs, rng, float("nan")), lambda: _with(pairs, rng, "a"), lambda: _with(pairs, rng, 10**400), lambda: pairs.T, lambda: pairs[:, :1],
        lambda: np.hstack([pairs, pairs]), lambda: pairs[:0], lambda: pairs[:1], lambda: np.repeat(pairs[:1], M, 0), lambda: np.column_stack([pairs[:, 0]] * 2),
        lambda: pd.DataFrame(pairs), lambda: pd.DataFrame(pairs).astype("Int64"), lambda: torch.tensor(pairs), lambda: pairs.astype("M8[D]"),
        lambda: np.ma.masked_equal(pairs, 3), lambda: pairs % 2 == 0, lambda: pairs[::-1], lambda: _frozen(pairs), lambda: pairs.astype(np.uint64) + np.uint64(2**63),
        lambda: pairs[: M // 2], lambda: pairs, lambda: np.vstack([pairs, pairs]), lambda: pairs.astype(complex),
    ]  # fmt: skip
    return pick(rng, ways)() if rng.random() < 0.8 else pick(rng, ANYTHING)()


def odd_similar(similar: Any, rng: Rng) -> Any:
    """Answers in another form, or spoiled."""
    ways: list[Callable[[], Any]] = [
        lambda: similar.astype(int), lambda: 2 * similar.astype(int) - 1, lambda: similar.astype(float), lambda: similar.tolist(), lambda: pd.Series(similar),
        lambda: pd.array(similar.astype(int), dtype="Int64"), lambda: np.where(similar, "yes", "no"), lambda: similar + 1, lambda: _with(similar, rng, 2),
        lambda: _with(similar.astype(float), rng, float("nan")), lambda: _with(similar, rng, None), lambda: similar * 0.5, lambda: similar[:, None], lambda: similar[:-1],
        lambda: similar | True, lambda: similar & False, lambda: torch.tensor(similar), lambda: _with(similar.astype(int), rng, -1), lambda: similar.astype("M8[D]"),
        lambda: np.ma.masked_array(similar, similar), lambda: [Decimal(int(s)) for s in similar], lambda: similar.astype(complex), lambda: similar,
        lambda: pd.array([None, *similar[1:]], dtype="boolean"), lambda: similar.astype(bytes), lambda: _with(similar, rng, 10**400),
    ]  # fmt: skip
    return pick(rng, ways)() if rng.random() < 0.8 else pick(rng, ANYTHING)()


def odd_annotators(people: Any, rng: Rng) -> Any:
    """Annotators in another form, or spoiled."""
    names = np.array(["ann", "bob\x1b[31m", "=cmd()"], dtype=object)
    ways: list[Callable[[], Any]] = [
        lambda: None, lambda: names[people], lambda: names[people].tolist(), lambda: np.array(["inf", "nan", "NA"])[people], lambda: np.array([np.inf, -np.inf, 1.0])[people],
        lambda: _with(people.astype(float), rng, float("nan")), lambda: _with(people, rng, None), lambda: np.arange(M), lambda: people[:-1], lambda: people[:, None],
        lambda: [(int(p), "x") for p in people], lambda: [[int(p)] for p in people], lambda: pd.Series(people), lambda: pd.Categorical(names[people]),
        lambda: [10**400 + int(p) for p in people], lambda: [b"a" * int(p + 1) for p in people], lambda: ["\ud800" * int(p + 1) for p in people],
        lambda: ["x" * 10_000 + str(p) for p in people], lambda: people.astype("M8[D]"), lambda: people > 0, lambda: [Strange() for _ in people], lambda: people,
        lambda: ["1" if p else 1 for p in people], lambda: torch.tensor(people),
    ]  # fmt: skip
    return pick(rng, ways)() if rng.random() < 0.85 else pick(rng, ANYTHING)()


SCALARS: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 5, 0.5, 1.5, -0.5, 1e-9, 1e9, float("nan"), float("inf"), -float("inf"), 10**400, 2**31, 2**63, "auto", "", "x", "none",
    "standard", "unit", "kmeans", "pairs", "random", "stochastic", "sigmoid", "per-annotator", "pooled", "rates", "adam", "sgd", "full", "cpu", "cuda", "cuda:99", "mps",
    "meta", b"x", [], (), {}, (4,), (0,), (4, 4), ("a",), (1.5,), (-3,), [4], np.int64(3), np.float32(0.5), np.array([1]), Decimal("0.5"), Fraction(1, 2), 1j, Strange,
    object(), np.random.RandomState(0), np.random.default_rng(0), "\x1b[2J", range(3), torch.tensor(0.5), np.datetime64("2020-01-01"),
]  # fmt: skip
