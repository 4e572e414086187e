"""The systems that are compared.

K-means, COP-KMeans and PCKMeans get standardised columns. The others get the shared preprocessing: scaling, initial
partition, dropout, early stopping; "paper" is the published recipe, without it. No method looks at true labels; what
they would have chosen is in ``ORACLES``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from pdcc.arrays import Features, Ints
from pdcc.baselines import COPKMeans, KMeans, PCKMeans
from pdcc.baselines.cidec import CIDEC
from pdcc.baselines.dcgmm import DCGMM
from pdcc.baselines.spherepair import SpherePair
from pdcc.data.answers import PairAnswers, as_answers
from pdcc.data.reading import ReadAnswers
from pdcc.estimator import VanillaDCC, VolMaxDCC
from pdcc.experiments.gaussian_mixture import PrincipalMixture
from pdcc.select.sweep import VOLUMES, select_volume
from pdcc.validation import check_features

PREPROCESSING: dict[str, Any] = {"scale": "auto", "init": "pairs"}
DEEP: dict[str, Any] = {"dropout": 0.5, "validation_fraction": 0.1, "patience": 8}
# As the paper's own features come: no scaling, plain K-means for a start, and no partition.
RAW: dict[str, Any] = {"scale": None, "init": "kmeans", "partition_weight": 0.0}
# What the authors choose the volume from (section 6), by labels.
PAPER_VOLUMES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
# The appendix repeats two tables with networks of these hidden layers.
THREE: dict[str, Any] = {"hidden": (512, 512, 512)}
NO_ITEMS = (np.empty((0, 0), dtype=np.float32), np.empty(0, dtype=np.int64))


class Clusterer(Protocol):
    """What every method is: an estimator of features, pairs and answers that also labels items it has not seen."""

    labels_: Ints

    def fit(
        self, X: ArrayLike, pairs: ArrayLike, similar: ArrayLike, annotators: ArrayLike | None = None
    ) -> object: ...

    def predict(self, X: ArrayLike) -> Ints: ...


@dataclass(frozen=True)
class Method:
    """A system by its name in tables, and how to make it: ``make(n_clusters, seed, cache)``.

    oracle: it chooses by true labels of some items, which are set before it is fitted.
    """

    title: str
    make: Callable[[int, int, Path | None], Clusterer]
    oracle: bool = False


class SelectedVolume(VolMaxDCC):
    """VolMaxDCC at the one of ``volumes`` that ``select_volume`` picks from the answers; ``selection_`` says why."""

    volumes: tuple[float, ...] = VOLUMES

    def fit(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Self:
        """Select, then fit to all answers."""
        asked, plain = self.volume, VolMaxDCC(**self.get_params())
        features = check_features(X)
        y = as_answers(X, len(features), pairs, similar, annotators, weights=weights, soft=soft)
        self.selection_ = select_volume(
            features, y, estimator=plain, volumes=self.volumes, random_state=self.random_state, progress=False
        )
        self.volume = self.selection_.value
        try:
            return super().fit(X, y)
        finally:
            self.volume = asked


class WithoutIds(VolMaxDCC):
    """VolMaxDCC that ignores annotator ids: what do ids change?"""

    def fit(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Self:
        """Fit to the answers as if nobody had recorded who gave them."""
        return super().fit(X, pairs, similar, None, weights, soft)


def _volmax(title: str, **settings: Any) -> Method:
    return Method(title, lambda k, s, c: VolMaxDCC(k, random_state=s, progress=False, **settings))


def _vanilla_paper(title: str, **changes: Any) -> Method:
    return Method(title, lambda k, s, c: VanillaDCC.paper(k, random_state=s, progress=False, **changes))


def _volmax_paper(title: str, **changes: Any) -> Method:
    return Method(title, lambda k, s, c: VolMaxDCC.paper(k, random_state=s, progress=False, **changes))


def _by_labels(title: str, **changes: Any) -> Method:
    """As published, with the authors' choice by a labelled validation set."""
    return Method(
        title,
        lambda k, s, c: VolMaxDCC.paper(k, oracle=NO_ITEMS, random_state=s, progress=False, **changes),
        oracle=True,
    )


def _deep(title: str, kind: type[DCGMM] | type[CIDEC] | type[SpherePair], **settings: Any) -> Method:
    return Method(
        title,
        lambda k, s, c: kind(k, **PREPROCESSING, **DEEP, **settings, pretrained=c, random_state=s, progress=False),
    )


def _scalings(name: str, title: str, kind: type[KMeans] | type[PCKMeans]) -> dict[str, Method]:
    """One classical method on each scaling, from its published start: nothing in it is ours."""

    def at(scale: str | None) -> Callable[[int, int, Path | None], Clusterer]:
        return lambda k, s, c: kind(k, scale=scale, random_state=s)

    return {
        f"{name}-standard": Method(f"{title}, standardised columns", at("standard")),
        f"{name}-unit": Method(f"{title}, unit rows", at("unit")),
        f"{name}-unscaled": Method(f"{title}, unscaled", at(None)),
    }


def _volumes(name: str, title: str, volumes: Sequence[float] = VOLUMES, **settings: Any) -> dict[str, Method]:
    """One setting at each of ``volumes``, and at the one that is selected from the answers."""
    fixed = {f"{name}-v{v:g}": _volmax(f"{title}, volume {v:g}", volume=v, **settings) for v in volumes}

    def select(k: int, s: int, c: Path | None) -> Clusterer:
        estimator = SelectedVolume(k, random_state=s, progress=False, **settings)
        estimator.volumes = tuple(volumes)
        return estimator

    return fixed | {f"{name}-selected": Method(f"{title}, selected volume", select)}


def _published(**changes: Any) -> dict[str, Any]:
    """All settings of the paper but K and the volume."""
    given = ("n_clusters", "volume", "random_state", "progress")
    return {k: v for k, v in VolMaxDCC.paper().get_params().items() if k not in given} | changes


KMEANS_SCALINGS, PCK_MEANS_SCALINGS = (
    _scalings("kmeans", "K-means", KMeans),
    _scalings("pck-means", "PCKMeans", PCKMeans),
)
METHODS: dict[str, Method] = {
    "gaussian-mixture": Method("Gaussian mixture", lambda k, s, c: PrincipalMixture(k, random_state=s)),
    "kmeans": Method("K-means", lambda k, s, c: KMeans(k, scale="standard", random_state=s)),
    "cop-kmeans": Method(
        "COP-KMeans", lambda k, s, c: COPKMeans(k, scale="standard", on_infeasible="relax", random_state=s)
    ),
    "pck-means": Method("PCKMeans", lambda k, s, c: PCKMeans(k, scale="standard", random_state=s)),
    "dc-gmm": _deep("DC-GMM", DCGMM),
    # Its own stop, when few labels change, comes before held-out answers can speak: early stopping is in its place.
    "c-idec": _deep("C-IDEC", CIDEC, tol=0.0),
    "spherepair": _deep("SpherePair", SpherePair),
    "spherepair-paper": Method(
        "SpherePair, published", lambda k, s, c: SpherePair(k, pretrained=c, random_state=s, progress=False)
    ),
    "vanilla-paper": _vanilla_paper("VanillaDCC, paper"),
    "volmax-paper": _volmax_paper("VolMaxDCC, paper"),
    "vanilla": Method("VanillaDCC", lambda k, s, c: VanillaDCC(k, random_state=s, progress=False)),
    "volmax": _volmax("**VolMaxDCC, default**"),
    "volmax-no-ids": Method(
        "VolMaxDCC, default, without ids", lambda k, s, c: WithoutIds(k, random_state=s, progress=False)
    ),
    "volmax-shared": _volmax("VolMaxDCC, shared confusion", confusion="stochastic"),
    "volmax-per-annotator": _volmax("VolMaxDCC, per annotator", confusion="per-annotator"),
    "volmax-sigmoid": _volmax("VolMaxDCC, free B", confusion="sigmoid"),
    "volmax-paper-oracle": _by_labels("VolMaxDCC, paper, volume and epoch by labels (oracle)"),
    **_volumes("volmax-paper", "VolMaxDCC, paper", PAPER_VOLUMES, **_published()),
    **_volumes("volmax", "shared confusion", confusion="stochastic"),
    **_volumes("raw", "raw features", confusion="stochastic", **RAW),
    **KMEANS_SCALINGS,
    **PCK_MEANS_SCALINGS,
}
# The default less one of its parts each.
ABLATION: dict[str, Method] = {
    "no-volume": _volmax("stochastic, volume 0", confusion="stochastic", volume=0.0),
    "volume": _volmax("stochastic, volume 0.01", confusion="stochastic", volume=1e-2),
    "free-b": _volmax("sigmoid, volume 0.01", confusion="sigmoid", volume=1e-2),
    "no-confusion": _volmax("none, volume 0.01", confusion="none", volume=1e-2),
    "raw": _volmax("raw features", scale=None),
    "standard": _volmax("standard scale", scale="standard"),
    "kmeans-start": _volmax("K-means start", init="kmeans"),
    "random-start": _volmax("random start", init="random"),
    "no-dropout": _volmax("no dropout", dropout=0.0),
    "two-layers": _volmax("two hidden layers", hidden=(512, 512)),
    "no-early-stopping": _volmax(
        "no early stopping, 30 epochs", confusion="stochastic", volume=1e-2, validation_fraction=0.0, epochs=30
    ),
    "three-restarts": _volmax("three restarts", n_init=3),
    "no-partition": _volmax("partition weight 0", partition_weight=0.0),
    "partition": _volmax("partition weight 1", partition_weight=1.0),
}
# As published, with three hidden layers, and ours beside them.
THREE_LAYERS: dict[str, Method] = {
    "dc-gmm-three": _deep("DC-GMM, three hidden layers", DCGMM, **THREE),
    "c-idec-three": _deep("C-IDEC, three hidden layers", CIDEC, tol=0.0, **THREE),
    "vanilla-paper-three": _vanilla_paper("VanillaDCC, paper, three hidden layers", **THREE),
    "volmax-paper-three": _volmax_paper("VolMaxDCC, paper, three hidden layers", **THREE),
    "volmax-paper-three-oracle": _by_labels(
        "VolMaxDCC, paper, three hidden layers, volume and epoch by labels (oracle)", **THREE
    ),
    "volmax-three": _volmax("VolMaxDCC, three hidden layers", **THREE),
}
# As published but for the scaling, or for the scaling and the start: what of the difference from ours do these make?
UNIT: dict[str, Any] = {"scale": "unit"}
STARTED: dict[str, Any] = {"scale": "unit", "init": "pairs"}
PREPARED: dict[str, Method] = {
    "vanilla-paper-unit": _vanilla_paper("VanillaDCC, paper, unit rows", **UNIT),
    "vanilla-paper-started": _vanilla_paper("VanillaDCC, paper, unit rows and our start", **STARTED),
    "volmax-paper-unit": _volmax_paper("VolMaxDCC, paper, unit rows", **UNIT),
    "volmax-paper-started": _volmax_paper("VolMaxDCC, paper, unit rows and our start", **STARTED),
}
METHODS |= ABLATION | THREE_LAYERS | PREPARED
# No methods, but the best of some in every trial by the true labels: a bar, and never a recommendation.
ORACLES: dict[str, tuple[str, ...]] = {
    "kmeans-oracle": tuple(KMEANS_SCALINGS),
    "pck-means-oracle": tuple(PCK_MEANS_SCALINGS),
}
# Whose figures in the paper stand beside ours. Of each of our methods: (their name, whether the network has three
# hidden layers).
IN_PAPER = {
    "kmeans": ("Kmeans", False), "cop-kmeans": ("COP-Kmeans", False), "pck-means": ("PCKmeans", False),
    "dc-gmm": ("DC-GMM", False), "c-idec": ("C-IDEC", False), "vanilla-paper": ("VanillaDCC", False),
    "volmax-paper": ("VolMaxDCC", False), "volmax-paper-oracle": ("VolMaxDCC", False),
    "dc-gmm-three": ("DC-GMM", True), "c-idec-three": ("C-IDEC", True), "vanilla-paper-three": ("VanillaDCC", True),
    "volmax-paper-three": ("VolMaxDCC", True), "volmax-paper-three-oracle": ("VolMaxDCC", True),
}  # fmt: skip
# Where ids are missing, a confusion for each annotator is the shared one, and the default has none to ignore.
NEED_ANNOTATORS = ("volmax-per-annotator", "volmax-no-ids")
