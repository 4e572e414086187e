"""DC-GMM (Manduchi et al., NeurIPS 2021) as a Pyro model and guide: a Gaussian mixture VAE whose prior knows the pairs."""

import math
from dataclasses import dataclass

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from pdcc.models.baselines.autoencoder import Decoder, Encoder
from pdcc.models.modules import Module


@dataclass(frozen=True)
class MixtureBatch:
    """n of the N items, drawn evenly, and b of the M answered pairs; all tensors on one device.

    x: the items' features, (n, d). items: their row numbers, (n,).
    left, right: features of the pairs' endpoints, (b, d) each. similar: answers, (b,), 1.0 or 0.0. index: which pairs, (b,).
    """

    x: Tensor
    items: Tensor
    left: Tensor
    right: Tensor
    similar: Tensor
    index: Tensor


class ConditionalMixture(Module):
    """p(c | W) ~ prod_i pi_{c_i} prod_{ij} exp(W_ij [c_i = c_j]), z_i ~ Normal(mu_{c_i}, sigma_{c_i}^2), x_i ~ Normal(decoder(z_i), 1).

    Given z, the clusters are summed out: exactly in the density of z, which makes the ELBO that of VaDE, and in the
    pairs' potential by its expectation under p(c_i | z_i) p(c_j | z_j), which makes it the paper's conditional ELBO.
    W_ij is ``weight`` for similar and ``-weight`` for different; each answer counts once (the release sums over a
    symmetric W, which counts it twice).

    pi is even, as released: the normaliser of p(c | W) depends on pi, and is a constant only while pi is one.
    Features are real numbers, so x is Normal, as in the release (whose squared error amounts to a variance of 1/2);
    the unit variance supposes features whose overall deviation is 1.

    Args:
        decoder: z (n, L) to the mean of x (n, d).
        n_clusters, latent: K, L.
        n_items, n_pairs: N, M, of which a batch shows some.
        weight: |W_ij|.
    """

    def __init__(self, decoder: Decoder, n_clusters: int, latent: int, *, n_items: int, n_pairs: int, weight: float):
        super().__init__()
        self.decoder = decoder
        self.n_items, self.n_pairs, self.weight = n_items, n_pairs, weight
        self.register_buffer("log_pi", torch.full((n_clusters,), -math.log(n_clusters)))
        self.loc = nn.Parameter(torch.zeros(n_clusters, latent))
        self.log_variance = nn.Parameter(torch.zeros(n_clusters, latent))

    def forward(self, batch: MixtureBatch) -> None:
        """The generative story of one batch."""
        decoder = self.decoder
        prior = self.mixture()

        with pyro.plate("items", self.n_items, subsample=batch.items):
            z = pyro.sample("z", prior)
            pyro.sample("x", dist.Normal(decoder(z), 1.0).to_event(1), obs=batch.x)

        with pyro.plate("answers", self.n_pairs, subsample=batch.index):
            # Masked: an endpoint's own densities count when it comes by among the items, here its pair alone counts.
            left = pyro.sample("z_left", prior.mask(False))
            right = pyro.sample("z_right", prior.mask(False))
            together = (self.log_responsibilities(left).exp() * self.log_responsibilities(right).exp()).sum(-1)
            pyro.factor("pairs", self.weight * (2 * batch.similar - 1) * together)

    def mixture(self) -> dist.Distribution:
        """sum_c pi_c Normal(mu_c, sigma_c^2), the density of z."""
        loc, deviation = self.loc, self.log_variance.div(2).exp()
        return dist.MixtureSameFamily(dist.Categorical(logits=self.log_pi), dist.Normal(loc, deviation).to_event(1))

    def log_responsibilities(self, z: Tensor) -> Tensor:
        """log p(c | z), (n, K), for z (n, L); in float64, where no float32 code overflows when squared."""
        loc, log_variance = self.loc.double(), self.log_variance.double()
        squares = (z.double()[..., None, :] - loc).square() * (-log_variance).exp()
        log_density = -(squares + log_variance).sum(-1) / 2
        return torch.log_softmax(log_density + self.log_pi.double(), dim=-1)

    @torch.no_grad()
    def start(self, loc: Tensor, variance: Tensor) -> None:
        """Put the components at means and variances, (K, L) each."""
        self.loc.copy_(loc)
        self.log_variance.copy_(variance.log())


class RecognitionGuide(Module):
    """q(z | x) = Normal(encoder(x), exp(log_variance(x))), amortised; the endpoints of pairs have the same one."""

    def __init__(self, encoder: Encoder, latent: int, *, n_items: int, n_pairs: int, start_variance: float = 1.0):
        super().__init__()
        self.encoder = encoder
        self.n_items, self.n_pairs = n_items, n_pairs
        self.log_variance = nn.Linear(encoder.width, latent)
        nn.init.zeros_(self.log_variance.weight)
        nn.init.constant_(self.log_variance.bias, math.log(start_variance))

    def forward(self, batch: MixtureBatch) -> None:
        """Draw z of the items and of the pairs' endpoints."""
        drawn = self.posterior(torch.cat([batch.x, batch.left, batch.right]))
        sizes = [len(batch.x), len(batch.left), len(batch.right)]
        items, left, right = (
            dist.Normal(*parts).to_event(1) for parts in zip(*(part.split(sizes) for part in drawn), strict=True)
        )
        with pyro.plate("items", self.n_items, subsample=batch.items):
            pyro.sample("z", items)
        with pyro.plate("answers", self.n_pairs, subsample=batch.index):
            pyro.sample("z_left", left.mask(False))
            pyro.sample("z_right", right.mask(False))

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z | x), (n, L) each."""
        encoder = self.encoder
        body = encoder.body(x)
        return encoder.head(body), self.log_variance(body).div(2).exp()
