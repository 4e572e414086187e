"""The autoencoder that the deep baselines share: an encoder, by default D-500-500-2000-10, and its mirror image."""

import itertools
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import normalize


def _perceptron(widths: Sequence[int], dropout: float) -> nn.Sequential:
    """ReLU layers between ``widths``. Dropout is there even at 0, so that parameter names do not depend on it."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [_linear(fan_in, fan_out), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def _linear(fan_in: int, fan_out: int) -> nn.Linear:
    # torch's own start shrinks the signal sixfold per layer in power, and there are eight layers.
    layer = nn.Linear(fan_in, fan_out)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Encoder(nn.Module):
    """Features (n, d) to codes (n, L): ``head(body(x))``; the body's output (n, H) may feed further heads."""

    def __init__(self, n_features: int, hidden: Sequence[int], latent: int, dropout: float = 0.0):
        super().__init__()
        self.width = [n_features, *hidden][-1]
        self.body = _perceptron([n_features, *hidden], dropout)
        self.head = _linear(self.width, latent)

    def forward(self, x: Tensor) -> Tensor:
        """Codes (n, L)."""
        code: Tensor = self.head(self.body(x))
        return code


class Decoder(nn.Module):
    """Codes (n, L) to features (n, d); ``hidden`` is the encoder's, gone through backwards."""

    def __init__(self, n_features: int, hidden: Sequence[int], latent: int):
        super().__init__()
        widths = [latent, *reversed(hidden)]
        self.body = _perceptron(widths, 0.0)
        self.head = _linear(widths[-1], n_features)

    def forward(self, z: Tensor) -> Tensor:
        """Features (n, d)."""
        x: Tensor = self.head(self.body(z))
        return x


class Autoencoder(nn.Module):
    """An encoder and the decoder that undoes it (Xie et al. 2016; the baselines' papers).

    Args:
        n_features: d.
        hidden: widths of the encoder's hidden ReLU layers.
        latent: L, the length of a code.
        dropout: probability of dropping a hidden unit of the encoder while training.
        unit_codes: whether codes are divided by their length, so that they lie on a sphere.
    """

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int] = (500, 500, 2000),
        latent: int = 10,
        dropout: float = 0.0,
        unit_codes: bool = False,
    ):
        super().__init__()
        self.unit_codes = unit_codes
        self.encoder = Encoder(n_features, hidden, latent, dropout)
        self.decoder = Decoder(n_features, hidden, latent)

    def codes(self, x: Tensor) -> Tensor:
        """Codes (n, L) of features (n, d), as the decoder takes them."""
        z: Tensor = self.encoder(x)
        return normalize(z, dim=1) if self.unit_codes else z

    def forward(self, x: Tensor) -> Tensor:
        """Reconstructions (n, d) of features (n, d)."""
        out: Tensor = self.decoder(self.codes(x))
        return out
