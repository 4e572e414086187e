"""C-IDEC (Zhang, Basu and Davidson 2019, 2021): centres in an autoencoder's code space, and losses for linked pairs."""

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, mse_loss, softplus

from pdcc.models.baselines.autoencoder import Autoencoder
from pdcc.models.objective import similar_logits


class EmbeddedClusters(nn.Module):
    """q_ik ~ (1 + |z_i - mu_k|^2)^-exponent, z = encoder(x): soft assignments by a Student-t kernel (DEC, eq. 1).

    DEC's kernel of one degree of freedom has exponent (1 + 1) / 2 = 1. The code released with C-IDEC raises to the
    power 1 + 1 and then halves, which the normalisation undoes: exponent 2, with sharper assignments.
    """

    def __init__(self, autoencoder: Autoencoder, n_clusters: int, latent: int, exponent: float = 2.0):
        super().__init__()
        self.autoencoder = autoencoder
        self.centres = nn.Parameter(torch.zeros(n_clusters, latent))
        self.exponent = exponent

    def log_assign(self, z: Tensor) -> Tensor:
        """log q, (n, K), for codes z (n, L)."""
        squares = (z[:, None, :] - self.centres).square().sum(-1)
        return torch.log_softmax(-self.exponent * squares.log1p(), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """log q, (n, K), for features x (n, d)."""
        return self.log_assign(self.autoencoder.encoder(x))

    def cluster_loss(self, x: Tensor, log_target: Tensor, kl_weight: float) -> Tensor:
        """Mean squared error of the reconstruction + kl_weight KL(p | q) per item, for log p (n, K), as in IDEC."""
        z = self.autoencoder.encoder(x)
        kl = kl_div(self.log_assign(z), log_target, reduction="batchmean", log_target=True)
        return mse_loss(self.autoencoder.decoder(z), x) + kl_weight * kl

    def must_link_loss(self, left: Tensor, right: Tensor, weight: float) -> Tensor:
        """weight times the mean of -log sum_k q_ik q_jk, + both reconstruction errors, for features (b, d) each."""
        z_left, z_right = self.autoencoder.encoder(torch.cat([left, right])).chunk(2)
        again = [mse_loss(self.autoencoder.decoder(z), x) for z, x in ((z_left, left), (z_right, right))]
        return weight * softplus(-self._link_logits(z_left, z_right)).mean() + sum(again)

    def cannot_link_loss(self, left: Tensor, right: Tensor, weight: float) -> Tensor:
        """weight times the mean of -log(1 - sum_k q_ik q_jk); as released, with no reconstruction beside it."""
        z_left, z_right = self.autoencoder.encoder(torch.cat([left, right])).chunk(2)
        return weight * softplus(self._link_logits(z_left, z_right)).mean()

    def _link_logits(self, z_left: Tensor, z_right: Tensor) -> Tensor:
        # With l = log s - log(1 - s): -log s = softplus(-l) and -log(1 - s) = softplus(l), both finite at s = 0 and 1.
        identity = torch.eye(len(self.centres), dtype=z_left.dtype, device=z_left.device)
        return similar_logits(self.log_assign(z_left).exp(), self.log_assign(z_right).exp(), identity)


def log_target(log_q: Tensor) -> Tensor:
    """log p, (N, K), with p_ik ~ q_ik^2 / sum_i q_ik over all N items (DEC, eq. 3); a constant to the optimiser."""
    return torch.log_softmax(2 * log_q - log_q.logsumexp(0), dim=1).detach()
