"""One torch thread for every test, and the small problems that many of them fit."""

import pytest
import torch
from helpers import Blobs, make_blobs

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def blobs() -> Blobs:
    """Clear clusters and answers without a mistake."""
    return make_blobs()


@pytest.fixture(scope="session")
def noisy_blobs() -> Blobs:
    """The same with about one answer in eight mistaken."""
    return make_blobs(flip=0.15, seed=1)
