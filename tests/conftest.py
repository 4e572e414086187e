"""Shared by all tests: one torch thread, and small problems with known answers."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pdcc.annotators import Answers, answer_through, draw_pairs

torch.set_num_threads(1)


@dataclass(frozen=True)
class Blobs:
    """Three Gaussian clusters with truth, and answers about their pairs."""

    X: np.ndarray
    y: np.ndarray
    answers: Answers


def make_blobs(
    n: int = 150, n_pairs: int = 600, flip: float = 0.0, seed: int = 0, n_clusters: int = 3, d: int = 4
) -> Blobs:
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=4.0, size=(n_clusters, d))
    y = np.arange(n) % n_clusters
    X = (centres[y] + rng.normal(size=(n, d))).astype(np.float32)
    A = np.full((n_clusters, n_clusters), flip / n_clusters) + (1 - flip) * np.eye(n_clusters)
    answers = answer_through(np.eye(n_clusters)[y], draw_pairs(n, n_pairs, rng), A, rng)
    return Blobs(X, y, answers)


@pytest.fixture(scope="session")
def blobs() -> Blobs:
    return make_blobs()


@pytest.fixture(scope="session")
def noisy_blobs() -> Blobs:
    return make_blobs(flip=0.15, seed=1)
