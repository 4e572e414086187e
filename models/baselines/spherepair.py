"""SpherePair (Zhang and Chen, NeurIPS 2025): an autoencoder whose codes lie on a sphere, and a loss of the angles of pairs."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, normalize

from pdcc.models.baselines.autoencoder import Autoencoder

# Cosines stay this far from 1 and -1, where the angle has no derivative (the release: 1e-7, half a step of float32 there).
MARGIN = 1e-6
# Memberships are a softmax of cosines times this: all but hard, as the method's own assignments are.
SHARPNESS = 50.0


class SphericalClusters(nn.Module):
    """Codes z = encoder(x) / |encoder(x)| and, found in them by K-means, centres of which an item goes to the nearest by angle.

    Args:
        autoencoder: one whose decoder takes codes of unit length.
        n_clusters, latent: K, L.
        omega: "different" asks for an angle of pi / omega or more, the negative zone.
    """

    centres: Tensor

    def __init__(self, autoencoder: Autoencoder, n_clusters: int, latent: int, omega: float = 2.0):
        super().__init__()
        self.autoencoder = autoencoder
        self.omega = omega
        self.register_buffer("centres", torch.zeros(n_clusters, latent))

    def codes(self, x: Tensor) -> Tensor:
        """Codes (n, L) of unit length, of features x (n, d)."""
        return self.autoencoder.codes(x)

    def forward(self, x: Tensor) -> Tensor:
        """log memberships (n, K) of features x (n, d): the largest is that of the centre with the largest cosine."""
        cosines = self.codes(x) @ normalize(self.centres, dim=1).T
        return torch.log_softmax(SHARPNESS * cosines, dim=1)

    def pair_loss(self, left: Tensor, right: Tensor, similar: Tensor) -> Tensor:
        """Mean over pairs of features (b, d) each, with answers similar (b,), 1.0 or 0.0."""
        z_left, z_right = self.codes(torch.cat([left, right])).chunk(2)
        return angular_loss((z_left * z_right).sum(1), similar, self.omega)

    def reconstruction_loss(self, x: Tensor) -> Tensor:
        """Mean squared error of features x (n, d) decoded from their unit codes."""
        return mse_loss(self.autoencoder(x), x)


def angular_loss(cosine: Tensor, similar: Tensor, omega: float) -> Tensor:
    """Mean cross entropy of answers, (b,), as the release computes it, with the angle theta of two codes, given by its cosine (b,).

    "Similar" has probability (1 + cos theta) / 2; for a pair that was called different it is (1 + cos omega theta) / 2
    up to pi / omega and 0 beyond, where such a pair costs nothing and is left alone.
    """
    cosine = cosine.clamp(-1 + MARGIN, 1 - MARGIN)
    angle = omega * torch.acos(cosine)
    together = -torch.log((1 + cosine) / 2)
    # Beyond the zone's edge the angle is replaced before the logarithm, so that no derivative there is infinite times 0.
    inside = angle < math.pi
    apart = -torch.log((1 - torch.cos(torch.where(inside, angle, math.pi))) / 2)
    return torch.where(similar > 0.5, together, torch.where(inside, apart, 0.0)).mean()
