"""What the baselines share: checked input, and predictions for unseen items."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pdcc.arrays import Features, Float32, Float64, Floats, Ints
from pdcc.baselines.rates import rates_nll, two_rates
from pdcc.data.answers import PairAnswers
from pdcc.data.pairs import PairData
from pdcc.data.reading import ReadAnswers
from pdcc.data.scaling import Scaler
from pdcc.errors import PairDataError
from pdcc.pair_input import PairInput
from pdcc.rows import whole
from pdcc.validation import check_n_clusters, check_random_state, seed_of


class PairClusterer(PairInput):
    """A clustering of features and answered pairs that predicts unseen items.

    ``score`` turns clusters into probabilities by two rates, ``rates_``: the share of "similar" answers about two items
    that ``predict`` puts into one cluster, and into two.

    A subclass has at least the parameters ``n_clusters``, ``scale`` and ``random_state``. It defines how clusters are
    learned (``_learn``) and which cluster an item goes to (``_assign``). Cluster numbers are arbitrary.
    """

    n_clusters: int
    scale: str | None
    random_state: Any
    scaler_: Scaler

    def fit(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Self:
        """Fit to features X (N, d), pairs (M, 2) of row numbers, answers similar (M,) and annotators (M,), if known.

        Or to X and y, in every form that VolMaxDCC takes. Annotators are checked; the methods themselves use none. Soft
        answers and weights are refused.
        """
        data = PairData.from_arrays(X, pairs, similar, annotators, weights, soft)
        if data.soft is not None or data.weight is not None:
            name, what = (
                ("similar", "plain answers") if data.soft is not None else ("weights", "answers that count alike")
            )
            fix = (
                f"{type(self).__name__} has no place for others: map answers to 0 and 1 and leave weights out, "
                "or use VolMaxDCC."
            )
            raise PairDataError(name, what, "soft ones" if data.soft is not None else "weights that differ", fix)
        features = whole(data.features, type(self).__name__)
        check_n_clusters(self.n_clusters, data.n_items)
        check_random_state(self.random_state)
        self._check()
        self._keep_names(data)
        self.n_features_in_ = features.shape[1]
        self.labels_: Ints = self._learn(features, data, seed_of(self.random_state))
        self.rates_ = two_rates(self._proba(self.scaler_(features)), data)
        return self

    def predict(self, X: Features) -> Ints:
        """Cluster numbers (n,) of seen or unseen items X (n, d), from their features alone."""
        features = self._features(X)  # raises NotFittedError before a fit
        return self._assign(self.scaler_(features))

    def _features(self, X: Features) -> Floats:
        check_is_fitted(self, "labels_")
        return whole(self._like_fitted(X, (self.n_features_in_,)), type(self).__name__)

    def _nll(self, data: PairData) -> Float64:
        return rates_nll(*self.rates_, self._proba(self.scaler_(whole(data.features, type(self).__name__))), data)

    def _proba(self, x: Float32) -> Float64:
        """Memberships (n, K) of scaled features x (n, d). Without memberships: 1 for the cluster an item goes to."""
        return np.eye(self.n_clusters)[self._assign(x)]

    def _check(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` for the first parameter of its own that training could not use."""

    @abstractmethod
    def _learn(self, X: Floats, data: PairData, seed: int) -> Ints:
        """Learn ``scaler_`` and what ``_assign`` needs from features X (N, d) and answers; returns labels (N,)."""

    @abstractmethod
    def _assign(self, x: Float32) -> Ints:
        """Labels (n,) of scaled features x (n, d)."""
