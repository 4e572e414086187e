"""For every test: one torch thread, and nothing in Pyro's parameter store. And the small problems that many of them fit."""

import pyro
import pytest
import torch
from helpers import Blobs, make_blobs

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def empty_store() -> None:
    """Programs that are run the ordinary way leave their weights in Pyro's store, under names that other programs share."""
    pyro.clear_param_store()


@pytest.fixture(scope="session")
def blobs() -> Blobs:
    """Clear clusters and answers without a mistake."""
    return make_blobs()


@pytest.fixture(scope="session")
def noisy_blobs() -> Blobs:
    """The same with about one answer in eight mistaken."""
    return make_blobs(flip=0.15, seed=1)
