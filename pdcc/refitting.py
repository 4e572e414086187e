"""A fitted estimator goes on with more answers."""

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pdcc.arrays import Features, Float64, RandomState
from pdcc.data.answers import PairAnswers
from pdcc.data.pairs import PairData
from pdcc.data.reading import ReadAnswers
from pdcc.errors import PairDataError
from pdcc.fitted import Fitted
from pdcc.pair_input import PairInput
from pdcc.select.refit import Changes, check_earlier, go_on
from pdcc.training import TrainConfig
from pdcc.validation import seed_of, show_progress


class Refitting(PairInput):
    """``refit`` for whatever has a ``Fitted`` and memberships (N, K) of the items it was fitted to."""

    n_clusters: int | str
    random_state: RandomState
    progress: bool | None
    fitted_: Fitted
    memberships_: Float64
    changes_: Changes | None

    @abstractmethod
    def check(self, n_items: int) -> None:
        """Raise for the first parameter that a fit to ``n_items`` items could not use."""

    @abstractmethod
    def config(self, seed: int, n_clusters: int | None = None) -> TrainConfig:
        """The parameters as training takes them."""

    @abstractmethod
    def _adopt(self, fitted: Fitted, memberships: Float64) -> None:
        """Take a fit as this estimator's."""

    def refit(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Self:
        """Go on from this fit with all answers: those it was fitted to first, in their order, then the new ones. Arguments are those of ``fit``.

        X (N, d) may have new items after those of the earlier fit. What that fit chose stays (K, scaling, confusion, volume), and so do
        cluster numbers and what was held out.
        ``changes_`` says what moved. Annotators who are new get a confusion of their own where the confusion is per annotator.
        """
        any_shape = getattr(self, "network", None) is not None
        return self.refit_data(PairData.from_arrays(X, pairs, similar, annotators, weights, soft, any_shape=any_shape))

    def refit_data(self, data: PairData, *, checkpoints: Path | None = None) -> Self:
        """The same with checked pairs. With a directory ``checkpoints``, an interrupted refit goes on from where it was."""
        data = self.check_refit(data)
        before = len(self.memberships_)
        config = self.config(seed_of(self.random_state), self.fitted_.config.n_clusters)
        fitted, changes = go_on(
            self.fitted_, data, config, n_items_before=before, progress=show_progress(self.progress), checkpoints=checkpoints
        )  # fmt: skip
        self._adopt(fitted, fitted.memberships(data.features))
        self.changes_ = changes
        return self

    def check_refit(self, data: PairData) -> PairData:
        """The data as ``refit_data`` takes them, columns in the fitted order; raises where the earlier fit cannot go on with them."""
        check_is_fitted(self, "fitted_")
        K = self.fitted_.config.n_clusters
        if self.n_clusters not in ("auto", K):
            found = repr(self.n_clusters)
            raise PairDataError("n_clusters", f"the {K} of the earlier fit, or auto", found, "Fit anew for another K.")
        self.check(data.n_items)
        names: Any = getattr(self, "feature_names_in_", None)
        features = self._features(data.given())
        data = replace(data, features=features, feature_names=None if names is None else tuple(map(str, names)))
        check_earlier(self.fitted_, self.memberships_, data)
        return data
