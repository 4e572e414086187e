"""Units of X: what is centred and scaled does not depend on them."""

import logging

import numpy as np
import pytest
from helpers import make_blobs
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcc import VolMaxDCC, metrics
from pdcc.data.scaling import Scaler
from pdcc.errors import PairDataError

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=60), RNG.exponential(size=60), RNG.random(60) < 0.2, RNG.normal(size=60) ** 3])


@pytest.mark.parametrize("kind", ["standard", "unit"])
@given(power=st.integers(-40, 40))
@settings(max_examples=30, deadline=None)
def test_powers_of_two_change_no_bit(kind, power):
    scaled = X * 2.0**power
    np.testing.assert_array_equal(Scaler.fit(X, kind)(X), Scaler.fit(scaled, kind)(scaled))


@pytest.mark.parametrize("kind", ["standard", "unit"])
@given(scale=st.floats(-12, 12), shift=st.floats(-1e6, 1e6))
@settings(max_examples=30, deadline=None)
def test_other_units_and_shifts_change_rounding_alone(kind, scale, shift):
    other = (X + shift * X.std(axis=0)) * 10.0**scale
    np.testing.assert_allclose(Scaler.fit(X, kind)(X), Scaler.fit(other, kind)(other), atol=2e-4)


@given(units=st.lists(st.floats(-9, 9), min_size=4, max_size=4))
@settings(max_examples=20, deadline=None)
def test_each_column_may_have_its_own_units(units):
    other = X * 10.0 ** np.array(units)
    np.testing.assert_allclose(Scaler.fit(X, "standard")(X), Scaler.fit(other, "standard")(other), atol=1e-4)


@pytest.mark.slow
def test_a_fit_does_not_depend_on_units():
    """Same choices and labels for X, X in other units, and X far from 0; for powers of two the same bits."""
    blobs = make_blobs(n=150, n_pairs=600, flip=0.1, seed=3)
    X = blobs.X.astype(np.float64)
    given = blobs.answers.pairs, blobs.answers.similar
    first = VolMaxDCC(3, hidden=(16,), random_state=0).fit(X, *given)
    twice = VolMaxDCC(3, hidden=(16,), random_state=0).fit(X * 2.0**-40, *given)
    np.testing.assert_array_equal(first.memberships_, twice.memberships_)
    for other in (X * 1e-12, X * 3e11, X + 1e6 * X.std(axis=0), X * [1.0, 1e6, 1.0, 1e-6]):
        found = VolMaxDCC(3, hidden=(16,), random_state=0).fit(other, *given)
        assert found.report_.start == first.report_.start
        assert found.report_.chosen == first.report_.chosen
        assert (found.labels_ == first.labels_).mean() >= 0.99
    assert metrics.acc(blobs.y, first.labels_) > 0.9


def test_constant_columns_are_left_out_whatever_new_items_have(caplog):
    some = np.column_stack([X, np.full(60, 7.1), np.full(60, 1e6) + 1e-11 * RNG.normal(size=60)])
    with caplog.at_level(logging.INFO, logger="pdcc"):
        scaler = Scaler.fit(some, "standard")
    assert "2 of 6 columns of X are constant" in caplog.text
    new = some.copy()
    new[:, 4:] += 100.0
    np.testing.assert_array_equal(scaler(new)[:, 4:], 0.0)
    np.testing.assert_array_equal(scaler(new)[:, :4], Scaler.fit(X, "standard")(X))


def test_far_out_values_do_not_squeeze_the_rest():
    column = np.concatenate([RNG.normal(size=200), [1e9]])[:, None]
    scaled = Scaler.fit(column, "standard")(column)
    assert scaled[:-1].std() > 0.7
    assert scaled[-1] < 10
    one_hot = (np.arange(200) % 50 == 0).astype(float)[:, None]  # nothing of it is far out
    assert np.ptp(Scaler.fit(one_hot, "standard")(one_hot)) > 5


def test_digits_lost_before_we_could_centre_are_said(caplog):
    shifted = (X + 1e6).astype(np.float32)
    with caplog.at_level(logging.WARNING, logger="pdcc"):
        Scaler.fit(shifted, "standard")
    assert "float32 keeps fewer than two digits" in caplog.text


def test_huge_numbers_are_scaled_or_refused():
    huge = X * 1e300
    assert np.isfinite(Scaler.fit(huge, "standard")(huge)).all()
    with pytest.raises(PairDataError, match=r"^X: expected numbers whose squares float32 can hold"):
        VolMaxDCC(3, scale=None, hidden=(8,), epochs=1).fit(huge, [[0, 1], [1, 2], [3, 4]], [1, 0, 1])


def test_of_many_components_the_leading_ones_are_kept():
    """Projected rows keep their distances as far as the leading components go, numbers about 1 in size, whatever the units."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 40)) * np.linspace(3.0, 0.01, 40)
    whole, part = Scaler.fit(X, "unit"), Scaler.fit(X, "unit", 12)
    assert part(X).shape == (300, 12)
    assert part.scaled((40,)) == (12,)
    assert np.mean(part(X) ** 2) == pytest.approx(1.0, rel=1e-5)
    u, _, _ = np.linalg.svd(whole(X).astype(np.float64), full_matrices=False)
    found, _ = np.linalg.qr(part(X).astype(np.float64))
    np.testing.assert_allclose(np.linalg.svd(u[:, :12].T @ found)[1], 1.0, atol=1e-6)  # the same space
    np.testing.assert_array_equal(part(X), Scaler.fit(X * 2.0**-30, "unit", 12)(X * 2.0**-30))
    np.testing.assert_allclose(part(X), Scaler.fit(X * 7.3, "unit", 12)(X * 7.3), rtol=1e-4, atol=1e-5)
    assert Scaler.fit(X, "unit", 40).axes.size == Scaler.fit(X, "standard", 12).axes.size == 0
