"""A pair has no first item: turning pairs round changes neither predictions nor, but for rounding, fits."""

import numpy as np
import pytest
from helpers import make_blobs

from pdcc import PairDataError, VolMaxDCC

SMALL = {"hidden": (8,), "dropout": 0.0, "init": "kmeans", "scale": "standard", "partition_weight": 0.0, "epochs": 10}


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(n=90, n_pairs=400, flip=0.2, seed=3)


@pytest.mark.parametrize("form", ["none", "sigmoid", "stochastic"])
def test_turned_pairs_are_predicted_and_fitted_alike(blobs, form):
    a = blobs.answers
    fits = [
        VolMaxDCC(3, confusion=form, volume=1e-3, random_state=0, **SMALL).fit(blobs.X, pairs, a.similar)
        for pairs in (a.pairs, a.pairs[:, ::-1])
    ]
    there, back = (
        fits[0].predict_pairs(blobs.X, pairs) for pairs in (a.pairs, a.pairs[:, ::-1])
    )  # a negative stride too
    np.testing.assert_allclose(there, back, rtol=1e-12)
    # The same sums in another order: float32 rounding over a hundred steps.
    np.testing.assert_allclose(fits[0].memberships_, fits[1].memberships_, atol=1e-3)


def test_the_papers_own_form_does_tell_them_apart(blobs):
    a = blobs.answers
    est = VolMaxDCC(3, confusion="sigmoid-paper", volume=1e-3, confusion_lr=0.1, random_state=0, **SMALL)
    est.fit(blobs.X, a.pairs, a.similar)
    assert np.abs(est.predict_pairs(blobs.X, a.pairs) - est.predict_pairs(blobs.X, a.pairs[:, ::-1])).max() > 1e-3


@pytest.mark.parametrize("X", [np.array([["1", "2"], ["3", "4"]]), np.array([["1.0", 2.0], [3, 4]], dtype=object)])
def test_text_is_no_feature_even_where_it_spells_a_number(X):
    with pytest.raises(PairDataError, match=r"^X: expected numbers") as caught:
        VolMaxDCC(2, **SMALL).fit(X, [[0, 1], [1, 0]], [1, 0])
    assert caught.value.row == 0


def test_numbers_in_an_object_array_are_features():
    X = make_blobs(n=12).X
    pairs, similar = [[0, 3], [0, 1], [1, 4], [2, 5]], [1, 0, 1, 1]
    fits = [VolMaxDCC(3, random_state=0, **SMALL | {"epochs": 1}).fit(x, pairs, similar) for x in (X, X.astype(object))]
    np.testing.assert_array_equal(fits[0].memberships_, fits[1].memberships_)
