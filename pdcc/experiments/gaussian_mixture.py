"""A Gaussian mixture on principal components: what a probabilistic clustering reaches without answers."""

from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture

from pdcc.arrays import Float32, Float64, Floats, Ints
from pdcc.baselines.base import PairClusterer
from pdcc.data.pairs import PairData
from pdcc.data.scaling import Scaler


class PrincipalMixture(PairClusterer):
    """scikit-learn's GaussianMixture on the K leading principal components. It checks the answers and ignores them.

    K means span at most K - 1 directions: K components leave room for one more. Covariances are full; the best of ten
    K-means starts is kept.

    Args:
        n_clusters: K.
        scale: None, "unit" or "standard".
        random_state: seed; an int fixes everything.

    Fitted attributes: labels_ (N,), memberships_ (N, K), scaler_, n_features_in_.
    """

    def __init__(self, n_clusters: int = 10, *, scale: str | None = None, random_state: Any = None):
        self.n_clusters = n_clusters
        self.scale = scale
        self.random_state = random_state

    def _learn(self, X: Floats, data: PairData, seed: int) -> Ints:
        self.scaler_ = Scaler.fit(X, self.scale)
        x = self.scaler_(X)
        wide = x.astype(np.float64)
        self._axes = PCA(min(self.n_clusters, *x.shape), random_state=seed).fit(wide)
        mixture = GaussianMixture(self.n_clusters, n_init=10, max_iter=500, random_state=seed)
        self._mixture = mixture.fit(self._axes.transform(wide))
        self.memberships_ = self._proba(x)
        return self._assign(x)

    def _proba(self, x: Float32) -> Float64:
        return np.asarray(self._mixture.predict_proba(self._axes.transform(x.astype(np.float64))), dtype=np.float64)

    def _assign(self, x: Float32) -> Ints:
        return np.asarray(self._proba(x).argmax(axis=1), dtype=np.int64)
