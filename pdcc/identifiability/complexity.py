"""What the bounds are computed from: the net's complexity R_NET, sigma_max(V) and alpha; and how large numbers are said."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from torch import nn

from pdcc.arrays import Float64
from pdcc.errors import expect
from pdcc.models import Membership
from pdcc.validation import check_matrix, check_memberships


def r_net(weights: Sequence[ArrayLike], references: Sequence[ArrayLike] | None = None) -> float:
    """R_NET of a ReLU net (paper, covering number lemma; Bartlett et al. 2017, Theorem 3.3).

    ``log(2 D^2) * prod_j s_j^2 * (sum_i (b_i / s_i)^(2/3))^3`` with s the spectral norm of a layer, b the (2,1) norm of
    its distance from a reference (the sum over output units of the length of their incoming weights), and D the largest
    width. The lemma fixes s and b before seeing data; norms of fitted weights are therefore a plug-in, and optimistic.

    Args:
        weights: one (out, in) matrix per layer. The lemma knows no biases; ``net_weights`` makes them columns (with a row that
            hands on the constant), for feature rows with a 1 appended.
        references: fixed matrices of the same shapes, such as the initial weights; zero by default. The paper's choice,
            the identity, fits residual nets only.
    """
    layers = [check_matrix("weights", w) for w in weights]
    expect(len(layers) > 0, "weights", "at least one matrix", "none", "Use net_weights(net).")
    for lower, upper in itertools.pairwise(layers):
        expect(
            upper.shape[1] == lower.shape[0],
            "weights",
            "(out, in) matrices that chain",
            f"shapes {lower.shape} then {upper.shape}",
            "Give the layers from input to output; transpose if they are (in, out).",
        )
    fixed = (
        [np.zeros_like(w) for w in layers]
        if references is None
        else [check_matrix("references", r) for r in references]
    )
    expect(
        [r.shape for r in fixed] == [w.shape for w in layers],
        "references",
        f"shapes {[w.shape for w in layers]}",
        f"{[r.shape for r in fixed]}",
        "Give one matrix per layer.",
    )
    spectral = np.array([np.linalg.norm(w, 2) for w in layers])
    if spectral.min() == 0:
        return 0.0  # a layer of zeros: the net is constant
    two_one = np.array([np.linalg.norm(w - r, axis=1).sum() for w, r in zip(layers, fixed, strict=True)])
    widest = max(max(w.shape) for w in layers)
    return float(math.log(2 * widest**2) * np.prod(spectral**2) * np.sum((two_one / spectral) ** (2 / 3)) ** 3)


def net_weights(net: Membership) -> list[Float64]:
    """The matrices of a perceptron from input to output, biases among them: each as a last column, for features with a 1 appended.

    Every layer but the last also has a row that hands the 1 on, so the matrices are (out + 1, in + 1), the last (out, in + 1).
    Count the 1 in the features' norm too (see ``Setting.from_fit``).
    """
    linear = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    out = []
    for layer in linear:
        bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias.detach().cpu()
        matrix = torch.cat([layer.weight.detach().cpu(), bias[:, None]], dim=1).double().numpy()
        hand_on = np.append(np.zeros(layer.in_features), 1.0)
        out.append(matrix if layer is linear[-1] else np.vstack([matrix, hand_on]))
    return out


def sigma_max_v(memberships: ArrayLike) -> float:
    """sigma_max(V) of Theorem 3.4: memberships F (N, K) without one anchor per cluster (the purest distinct items)."""
    F = check_memberships(memberships)
    _, anchors = linear_sum_assignment(F.T, maximize=True)
    rest = np.delete(F, anchors, axis=0)
    return float(np.linalg.norm(rest, 2)) if len(rest) else 0.0


def observed_alpha(memberships: ArrayLike, pairs: ArrayLike, agreement: ArrayLike | None = None) -> float:
    """The largest alpha with every observed p_ij = m_i' B m_j in [alpha, 1 - alpha].

    memberships F (N, K); pairs (M, 2) of row numbers; agreement B (K, K), the identity by default. The assumption asks
    this of all pairs and all f in the class, which forbids exact anchors: here it is reported, not enforced.
    """
    F, ij = check_memberships(memberships), np.asarray(pairs)
    expect(
        ij.ndim == 2 and ij.shape[1] == 2 and len(ij) > 0 and np.issubdtype(ij.dtype, np.integer),
        "pairs",
        "integers of shape (M, 2)",
        f"{ij.dtype} of shape {ij.shape}",
        "Give row numbers of memberships.",
    )
    B = np.eye(F.shape[1]) if agreement is None else check_matrix("agreement", agreement)
    p = np.einsum("nk,nk->n", F[ij[:, 0]] @ B, F[ij[:, 1]])
    return float(np.clip(np.minimum(p, 1 - p).min(), 0.0, np.nextafter(0.5, 0.0)))


def in_words(count: float) -> str:
    """A number of pairs as people say it: ``10,000``, ``3e21``, ``infinitely many``."""
    if math.isinf(count):
        return "infinitely many"
    if count < 1e6:
        return f"{count:,.0f}"
    mantissa, exponent = f"{count:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
