"""What the baselines share: checked input, the same scaling and start as ours where asked for, and predictions for unseen items."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pdcc.arrays import Features, Float32, Float64, Floats, Ints
from pdcc.auto.initialise import scaled_start
from pdcc.baselines.rates import rates_nll, two_rates
from pdcc.data.answers import PairAnswers
from pdcc.data.pairs import PairData
from pdcc.data.reading import ReadAnswers
from pdcc.data.scaling import SCALES, Scaler
from pdcc.errors import PairDataError
from pdcc.pair_input import PairInput
from pdcc.rows import whole
from pdcc.validation import check_n_clusters, check_one_of, check_random_state, seed_of

# "own": the method's published start; "kmeans" and "pairs": the partition that VolMaxDCC with that ``init`` sets out from.
INITS = ("own", "kmeans", "pairs")


class PairClusterer(PairInput):
    """A clustering of features and answered pairs that predicts unseen items.

    ``score`` turns clusters into probabilities by two rates, ``rates_``: how often "similar" was said about two items that
    ``predict`` puts into one cluster, and into two.

    A subclass has at least the parameters ``n_clusters``, ``scale``, ``init`` and ``random_state``, and says how it is
    trained (``_train``) and where an item goes (``_assign``). Cluster numbers are arbitrary.
    """

    n_clusters: int
    scale: str | None
    init: str
    random_state: Any

    def fit(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Self:
        """Fit to features X (N, d), pairs (M, 2) of row numbers, answers similar (M,) and, if known, their annotators (M,).

        Or to X and y, in every form that VolMaxDCC takes. Annotators are checked; the methods themselves see none. Nor do
        they know degrees and weights, which are refused.
        """
        data = PairData.from_arrays(X, pairs, similar, annotators, weights, soft)
        if data.soft is not None or data.weight is not None:
            name, what = (
                ("similar", "plain answers") if data.soft is not None else ("weights", "answers that count alike")
            )
            fix = f"{type(self).__name__} has no place for others: map answers to 0 and 1 and leave weights out, or use VolMaxDCC."
            raise PairDataError(name, what, "soft ones" if data.soft is not None else "weights that differ", fix)
        features = whole(data.features, type(self).__name__)
        check_n_clusters(self.n_clusters, data.n_items)
        check_one_of("scale", self.scale, ("auto", *SCALES))
        check_one_of("init", self.init, INITS)
        check_random_state(self.random_state)
        self._check()
        self._keep_names(data)
        seed = seed_of(self.random_state)
        labels = None
        if self.init == "own" and self.scale != "auto":
            self.scaler_ = Scaler.fit(data.features, self.scale)
        else:
            how = "pairs" if self.init == "pairs" else "kmeans"
            self.scaler_, start = scaled_start(
                data.features, self._shown(data, seed), self.n_clusters, scale=self.scale, init=how, seed=seed
            )
            labels = None if self.init == "own" else start.labels
        self.n_features_in_ = data.features.shape[1]
        x = self.scaler_(features)
        self.labels_: Ints = self._train(x, data, labels, seed)
        self.rates_ = two_rates(self._proba(x), data)
        return self

    def predict(self, X: Features) -> Ints:
        """Cluster numbers (n,) of seen or unseen items X (n, d), from their features alone."""
        features = self._features(X)  # also says so where nothing was fitted
        return self._assign(self.scaler_(features))

    def _features(self, X: Features) -> Floats:
        check_is_fitted(self, "labels_")
        return whole(self._like_fitted(X, (self.n_features_in_,)), type(self).__name__)

    def _nll(self, data: PairData) -> Float64:
        return rates_nll(*self.rates_, self._proba(self.scaler_(whole(data.features, type(self).__name__))), data)

    def _proba(self, x: Float32) -> Float64:
        """Memberships (n, K) of scaled features x (n, d): of a method that has none, 1 for the cluster an item goes to."""
        return np.eye(self.n_clusters)[self._assign(x)]

    def _check(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` for the first parameter of its own that training could not use."""

    def _shown(self, data: PairData, seed: int) -> PairData:
        """The answers that scaling and start may be chosen by: all but what training holds out."""
        return data

    @abstractmethod
    def _train(self, x: Float32, data: PairData, start: Ints | None, seed: int) -> Ints:
        """Train on scaled features x (N, d); returns labels (N,). ``start`` (N,): labels to set out from, or None."""

    @abstractmethod
    def _assign(self, x: Float32) -> Ints:
        """Labels (n,) of scaled features x (n, d)."""
