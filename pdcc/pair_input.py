"""What every estimator of features and answered pairs has of scikit-learn's: its input, its score, and memberships as features."""

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from pdcc.arrays import Features, Float64, Floats, Ints
from pdcc.data.answers import PairAnswers, as_answers
from pdcc.data.columns import in_fitted_order
from pdcc.data.degrees import weighed
from pdcc.data.pairs import PairData
from pdcc.data.reading import ReadAnswers
from pdcc.rows import FeatureRows
from pdcc.validation import check_features


class PairInput(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Fitted to X and answers, by ``fit(X, pairs, similar, annotators)`` or ``fit(X, y)`` with a ``PairAnswers`` or a table.

    A subclass fits (``fit``), checks new items by ``_features``, and says how likely answers are (``_nll``). Whatever it was
    fitted to by name, it takes in any order of the columns.
    """

    labels_: Ints

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @abstractmethod
    def fit(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Self:
        """Fit to features and answers."""

    def fit_predict(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Ints:
        """Fit, and return the labels (N,) of the items fitted on."""
        return self.fit(X, pairs, similar, annotators, weights, soft).labels_

    def score(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> float:
        """Mean log-likelihood per answer (weighted, where answers are), in nats: higher is better, 0 the best, and about -0.69 that of tossing a coin.

        Answers that were fitted flatter it; cross_val_score and GridSearchCV pass held-out ones. They may all be of one kind, and
        there must be one at least: a fold whose items no answer is about raises ``PairDataError``, which scikit-learn's
        ``error_score`` turns into nan and a warning.
        """
        data = self._checked(X, pairs, similar, annotators, weights, soft, both_kinds=False)
        return -float(weighed(self._nll(data), data).mean())

    @abstractmethod
    def _nll(self, data: PairData) -> Float64:
        """Negative log-likelihood (M,) of each answer about new items."""

    @abstractmethod
    def _features(self, X: Features) -> Floats | FeatureRows:
        """Checked features of items like the fitted ones."""

    def _checked(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
        *,
        both_kinds: bool = True,
    ) -> PairData:
        """Checked answers about items like the fitted ones."""
        features = self._features(X)
        answers = as_answers(X, len(features), pairs, similar, annotators, weights=weights, soft=soft)
        return PairData.from_arrays(features, answers, any_shape=features.ndim > 2, both_kinds=both_kinds)

    def _like_fitted(self, X: Features, item_shape: tuple[int, ...]) -> Floats | FeatureRows:
        """Features (n, d), or (n, ...), in the order of the fitted columns where both have names."""
        names: Any = getattr(self, "feature_names_in_", None)
        ordered = in_fitted_order(X, names)
        owner = type(self).__name__
        features = check_features(ordered, item_shape=item_shape, owner=owner, any_shape=len(item_shape) > 1)
        if features.ndim == 2 and not isinstance(
            features, FeatureRows
        ):  # scikit-learn's own warnings, where only one of the two has names
            validate_data(self, ordered, skip_check_array=True, reset=False)
        return features

    def _keep_names(self, data: PairData) -> None:
        """Remember the names of the features, as scikit-learn does; forget those of an earlier fit."""
        if data.feature_names is not None:
            self.feature_names_in_ = np.array(data.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_


class MembershipOutput(ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """``transform`` for whatever has ``fit`` and ``predict_proba``: memberships as features, one for each cluster."""

    memberships_: Float64

    def transform(self, X: Features) -> Float64:
        """Memberships (n, K) of seen or unseen items X (n, d); the same as ``predict_proba``."""
        F: Float64 = self.predict_proba(X)
        return F

    def fit_transform(
        self,
        X: Features,
        pairs: ArrayLike | PairAnswers | ReadAnswers,
        similar: ArrayLike | None = None,
        annotators: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        soft: bool = False,
    ) -> Float64:
        """Fit, and return the memberships (N, K) of the items fitted on."""
        F: Float64 = self.fit(X, pairs, similar, annotators, weights, soft).transform(X)
        return F

    @property
    def _n_features_out(self) -> int:
        return int(self.memberships_.shape[1])
