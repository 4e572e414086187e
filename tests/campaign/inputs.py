"""Odd arguments at every public entry point, in this process."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from campaign.odd import (
    ANYTHING,
    SCALARS,
    K,
    M,
    N,
    Rng,
    good,
    odd_annotators,
    odd_features,
    odd_pairs,
    odd_similar,
    pick,
)
from campaign.tally import Tally
from pdcc import (
    PairAnswers,
    PairData,
    VanillaDCC,
    VolMaxDCC,
    check_ssc,
    metrics,
    select_dropout,
    select_n_clusters,
    select_volume,
)
from pdcc.baselines import COPKMeans, KMeans, PCKMeans

QUICK = {"hidden": (4,), "epochs": 1, "init": "kmeans", "scale": "standard", "confusion": "stochastic", "volume": 0.01, "random_state": 0, "progress": False}  # fmt: skip
# Parameters whose odd values may cost hours if they are taken at their word.
COSTLY = {"epochs": 50, "n_init": 3, "hidden": 64, "n_clusters": N}


def sound(F: Any, n: int, k: int | None = None) -> str | None:
    """What is wrong with memberships."""
    if F.shape[0] != n or (k is not None and F.shape[1] != k):
        return f"memberships of shape {F.shape} for {n} items and {k} clusters"
    if not np.isfinite(F).all():
        return "memberships that are not finite"
    if (F < 0).any() or np.abs(F.sum(axis=1) - 1).max() > 1e-4:
        return "memberships off the simplex"
    return None


def rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def spoiled(rng: Rng) -> tuple[Any, Any, Any, Any]:
    """Good input, with one or two of its parts made odd."""
    X, pairs, similar, people = good(rng)
    for part in rng.choice(4, size=int(rng.integers(1, 3)), replace=False):
        if part == 0:
            X = odd_features(X, rng)
        elif part == 1:
            pairs = odd_pairs(pairs, rng)
        elif part == 2:
            similar = odd_similar(similar, rng)
        else:
            people = odd_annotators(people, rng)
    return X, pairs, similar, people


def from_arrays(rng: Rng) -> str | None:
    data = PairData.from_arrays(*spoiled(rng))
    if len(data) + data.self_pairs == 0 or not np.isfinite(data.features).all() or data.i.max() >= data.n_items:
        return f"odd data: {data}"
    data.fingerprint()
    return None


def answers(rng: Rng) -> str | None:
    X, pairs, similar, people = spoiled(rng)
    y = PairAnswers.from_arrays(pick(rng, [N, N, int(rng.integers(60)), X, pick(rng, SCALARS)]), pairs, similar, people)
    part = y[pick(rng, [slice(0, 5), np.arange(len(y)) % 2 == 0, [0, 1], [0, 0], [-1], [10**6], "a", 1.5, None, slice(None, None, -1)])]  # fmt: skip
    return None if len(part) <= max(len(y), 2) else f"{len(part)} items of {len(y)}"


def frames(rng: Rng) -> str | None:
    X, pairs, similar, people = good(rng)
    frame = pd.DataFrame({"i": pairs[:, 0], "j": pairs[:, 1], "similar": similar, "annotator": people})
    column = pick(rng, list(frame))
    if rng.random() < 0.3:
        value = (odd_similar if column == "similar" else odd_annotators)(frame[column].to_numpy().astype(int) % 3, rng)
        if (
            isinstance(value, list | np.ndarray)
            and not (isinstance(value, list) and any(isinstance(one, list | tuple) for one in value))
            and np.ndim(value) == 1
            and len(value) == M
            and "\\ud800" not in ascii(value)
        ):
            frame[column] = value
    ways: list[Callable[[], Any]] = [
        lambda: frame.drop(columns=column), lambda: frame.rename(columns={column: "other"}), lambda: frame.iloc[:0], lambda: frame.assign(**{column: None}),
        lambda: frame.astype({column: object}), lambda: frame.astype({column: "category"}), lambda: frame[[column] * 2], lambda: frame.set_index(column),
        lambda: frame.to_dict(), lambda: frame.T, lambda: pick(rng, ANYTHING)(), lambda: frame.sample(frac=1, random_state=0), lambda: frame,
    ]  # fmt: skip
    ids = pick(rng, [None, None, np.arange(N), [f"i{k}" for k in range(N)], np.zeros(N), *ANYTHING[:12]])
    data = PairData.from_frame(X, pick(rng, ways)(), item_ids=ids() if callable(ids) else ids)
    return None if len(data) + data.self_pairs else "no pairs"


def parameters(rng: Rng) -> str | None:
    """One or two odd parameters of an estimator on good data."""
    X, pairs, similar, people = good(rng)
    given = dict(QUICK)
    names = [n for n in VolMaxDCC().get_params() if n != "network"]
    for name in rng.choice(names, size=int(rng.integers(1, 3)), replace=False):
        value = pick(rng, SCALARS)
        limit = COSTLY.get(name)
        if limit and isinstance(value, int | float) and not isinstance(value, bool) and limit < value < 2**40:
            value = limit
        given[name] = value
    k = given.pop("n_clusters", K)
    est = VolMaxDCC(k, **given).fit(X, pairs, similar, pick(rng, [None, people]))
    str(est.report_)
    return sound(est.memberships_, N) or sound(est.predict_proba(X), N)


def fits(rng: Rng) -> str | None:
    """Odd data for whole, quick fits."""
    X, pairs, similar, people = spoiled(rng)
    vanilla = VanillaDCC(K, hidden=(4,), epochs=1, init="kmeans", random_state=0)
    est = pick(rng, [VolMaxDCC(K, **QUICK), vanilla]).fit(X, pairs, similar, people)
    return sound(est.memberships_, rows(X), K) or sound(est.predict_proba(X), rows(X), K)


def defaults(rng: Rng) -> str | None:
    """The default on odd data: what it returns holds together, whatever it chose."""
    X, pairs, similar, people = spoiled(rng)
    est = VolMaxDCC(pick(rng, [K, K, "auto"]), random_state=0, progress=False).fit(X, pairs, similar, people)
    str(est.report_)
    return sound(est.memberships_, rows(X))


def rivals(rng: Rng) -> str | None:
    X, pairs, similar, people = spoiled(rng)
    est = pick(rng, [KMeans, PCKMeans, COPKMeans])(pick(rng, [K, K, K, *SCALARS[:20]]), random_state=0)
    labels = est.fit(X, pairs, similar, people).labels_
    return None if len(labels) == rows(X) and labels.min() >= 0 else f"labels {labels}"


@cache
def fitted() -> tuple[VolMaxDCC, tuple[Any, Any, Any, Any]]:
    given = good(np.random.default_rng(0))
    return VolMaxDCC(K, **(QUICK | {"confusion": "per-annotator"})).fit(*given), given


def uses(rng: Rng) -> str | None:
    """Odd items and pairs for a fitted estimator."""
    est, _ = fitted()
    X, pairs, similar, people = spoiled(rng)
    call = int(rng.integers(6))
    if call == 0:
        return sound(est.predict_proba(X), rows(X), K)
    if call == 1:
        return None if len(est.predict(X)) == rows(X) else "labels of another length"
    if call == 2:
        p = est.predict_pairs(X, pairs, people)
        return None if np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all() else "probabilities that are none"
    if call == 3:
        return None if np.isfinite(est.score(X, pairs, similar, people)) else "a score that is not finite"
    if call == 4:
        return sound(est.transform(X), rows(X), K)
    return None if np.isfinite(est.objective(X, pairs, similar, people)) else "an objective that is not finite"


def scatter(rng: Rng) -> str | None:
    F: Any = rng.dirichlet(np.full(K, pick(rng, [0.1, 1.0, 10.0])), size=pick(rng, [1, 2, 5, 40]))
    ways: list[Callable[[], Any]] = [
        lambda: F, lambda: F.tolist(), lambda: F * 2, lambda: -F, lambda: F.astype(np.float32), lambda: F[:0], lambda: F[0], lambda: F.astype(complex), lambda: F + 0.5j,
        lambda: np.where(F > 0.5, np.nan, F), lambda: np.eye(K), lambda: np.full((5, K), 1 / K), lambda: np.repeat(F[:1], 9, 0), lambda: F[:, :1], lambda: np.ma.masked_less(F, 0.1),
        lambda: pick(rng, ANYTHING)(),
    ]  # fmt: skip
    options: dict[str, Any] = {"work_limit": 2.0}
    if rng.random() < 0.5:
        options[pick(rng, ["eps", "gap", "work_limit", "time_limit", "random_state"])] = pick(rng, SCALARS)
    found = check_ssc(pick(rng, ways)(), **options)
    return None if np.isfinite(found.margin).all() else f"a margin of {found.margin}"


def scores(rng: Rng) -> str | None:
    y: Any = rng.integers(3, size=10)
    ways: list[Callable[[], Any]] = [lambda: y, lambda: y.tolist(), lambda: y.astype(str), lambda: y.astype(float), lambda: y[:5], lambda: y[None], lambda: np.where(y > 1, np.nan, y), lambda: pick(rng, ANYTHING)()]  # fmt: skip
    value = pick(rng, [metrics.acc, metrics.nmi, metrics.ari])(pick(rng, ways)(), pick(rng, ways)())
    return None if np.isfinite(value) else f"a score of {value}"


def alignments(rng: Rng) -> str | None:
    F = rng.dirichlet(np.ones(3), size=6)
    ways: list[Callable[[], Any]] = [lambda: F, lambda: F[:, :2], lambda: F * np.nan, lambda: F.tolist(), lambda: pick(rng, ANYTHING)()]  # fmt: skip
    value = pick(rng, [metrics.align, metrics.membership_mse])(pick(rng, ways)(), pick(rng, ways)())
    return None if np.isfinite(value).all() else f"{value}"


def sweeps(rng: Rng) -> str | None:
    """Odd options of the sweeps: few fits, if any."""
    X, pairs, similar, people = spoiled(rng) if rng.random() < 0.5 else good(rng)
    which = int(rng.integers(3))
    est = VolMaxDCC(K, **QUICK) if rng.random() < 0.7 else pick(rng, SCALARS)
    grid = pick(rng, [[], [1], [0.0, "a"], None, 3, [0.0, 10**400], [np.nan, 1], [2, 3], "ab", [0.0, 0.1]])
    how = {"n_restarts": pick(rng, [1, 1, 0, -1, 2**63, "x", 1.5]), "random_state": 0, "progress": False}
    if which == 0:
        found = select_volume(X, pairs, similar, people, estimator=est, volumes=grid, **how)
    elif which == 1:
        found = select_dropout(X, pairs, similar, people, estimator=est, dropouts=grid, **how)
    else:
        found = select_n_clusters(X, pairs, similar, people, estimator=pick(rng, [None, est]), candidates=grid, **how)
    return None if found.value in list(found.table[found.parameter]) else f"chose {found.value}"


def verdicts(rng: Rng) -> str | None:
    """Odd options of ``diagnose`` and ``posterior``: refused, or what comes out is finite."""
    est, given = fitted()
    cheap = [v for v in SCALARS if not (isinstance(v, int | float) and 5 < v < 2**40)]
    if rng.random() < 0.7:
        name = pick(rng, ["draws", "n_restarts", "eps", "random_state", "work", "nonsense"])
        est.diagnose(*given, **({"draws": 3, "n_restarts": 1, "work": 0.1} | {name: pick(rng, cheap)}))
        return None
    name = pick(rng, ["method", "draws", "chains", "guide", "steps", "prior_scale", "random_state", "nonsense"])
    drawn = est.posterior(
        *given, **({"draws": 3, "steps": 20, "warmup": 2} | {name: pick(rng, [*cheap, "svi", "normal"])})
    )
    return None if np.isfinite(drawn.posterior["memberships"].to_numpy()).all() else "draws that are not finite"


def places(rng: Rng, home: Path) -> str | None:
    """Odd paths to save to and load from."""
    est, _ = fitted()
    (home / "file").write_text("mine")
    names = [
        "a",
        "a/b/c",
        "x" * 300,
        "\x00",
        "\x1b[31m",
        "\u00e9\u202e",
        "\ud800",
        "file",
        "file/under",
        "deep/../other",
    ]
    path = home / pick(rng, names) if rng.random() < 0.8 else pick(rng, [3, None, b"bytes", [], 1.5, object()])
    try:
        est.save(path)
        same = np.array_equal(VolMaxDCC.load(path).memberships_, est.memberships_)
    finally:
        if (home / "file").read_text() != "mine":
            return "a file that was there is another now"  # noqa: B012
    return None if same else "another estimator came back"


KINDS: dict[str, tuple[Callable[..., str | None], int]] = {
    "PairData.from_arrays": (from_arrays, 4000), "PairAnswers": (answers, 1000), "PairData.from_frame": (frames, 1000), "parameters": (parameters, 1200),
    "fit": (fits, 600), "fit, the default": (defaults, 60), "baselines": (rivals, 500), "predict, score, objective": (uses, 1500), "check_ssc": (scatter, 500),
    "metrics": (scores, 600), "align": (alignments, 300), "select_*": (sweeps, 150), "diagnose, posterior": (verdicts, 60), "save, load": (places, 60),
}  # fmt: skip


def run(tally: Tally, seed: int, share: float, home: Path) -> None:
    """A ``share`` of all attempts."""
    for number, (kind, (make, count)) in enumerate(KINDS.items()):
        for k in range(max(1, round(share * count))):
            more = [home] if make is places else []
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                tally.attempt(kind, k, lambda: make(np.random.default_rng([seed, number, k]), *more))  # noqa: B023
