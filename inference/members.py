"""Programs that are alike, each with answers of its own, as one stack; and back."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from pdcc.inference.batches import PairTensors, epoch_order, index_batches
from pdcc.inference.predict import Probe
from pdcc.inference.stack import Part, Stack, scores
from pdcc.models.annotation import AnnotationModel
from pdcc.models.objective import answer_nll
from pdcc.models.volume import log_volume

# How many numbers are computed at once outside training.
CHUNK = 20_000_000


@dataclass(frozen=True)
class MemberPairs:
    """The answers of R members, up to M each: i, j, similar, weight (R, M), annotator likewise or None; total: (R,).

    weight: of mean 1 over a member's answers, and 0 past their end.
    """

    i: Tensor
    j: Tensor
    similar: Tensor
    weight: Tensor
    annotator: Tensor | None
    total: Tensor

    @classmethod
    def of(cls, each: Sequence[PairTensors]) -> "MemberPairs":
        """Answers about the same items, one set for each member."""
        weight = [
            p.in_memory.new_ones(len(p)) if p.weight is None else (p.weight / p.weight.mean()).to(p.in_memory)
            for p in each
        ]
        annotators = [p.annotator for p in each if p.annotator is not None]
        return cls(
            _padded([p.i for p in each]),
            _padded([p.j for p in each]),
            _padded([p.similar for p in each]),
            _padded(weight),
            _padded(annotators) if annotators else None,
            each[0].in_memory.new_tensor([p.total_weight for p in each]),
        )


class MemberStack(Stack):
    """The stack of R programs and their guides, laid out: one confusion form, volume and partition weight; nets of one shape."""

    def __init__(self, models: Sequence[AnnotationModel], guides: Sequence[PyroModule], pairs: Sequence[PairTensors]):
        super().__init__([model.membership for model in models], models[0], pairs[0])
        self.answers = MemberPairs.of(pairs)
        self.lengths = [len(p) for p in pairs]
        self.labels = torch.stack([m.partition for m in models]) if models[0].partition_weight > 0 else None
        self.volumes = self.identity.new_tensor([model.volume for model in models])
        self.places = [_places(model, guide) for model, guide in zip(models, guides, strict=True)]
        self.nets = [[m for m in model.membership.modules() if isinstance(m, nn.Linear)] for model in models]
        with torch.no_grad():
            for name in self.places[0]:
                getattr(self, name).copy_(torch.stack([place[name] for place in self.places]))

    @torch.no_grad()
    def hand_back(self, r: int) -> None:
        """Put the values of member ``r`` into its own model and guide."""
        for own, (w, b) in zip(self.nets[r], self.layers, strict=True):
            own.weight.copy_(w[r].mT)
            own.bias.copy_(b[r, 0])
        for name, own_value in self.places[r].items():
            own_value.copy_(getattr(self, name)[r])

    def parts(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Iterator[Part]:
        """The steps of an epoch, every member's pairs in the order that it would see them in alone."""
        least, device = 2 * self.like.membership.n_clusters, self.answers.i.device
        orders = [epoch_order(m, seed, epoch, device) for m, seed in zip(self.lengths, seeds, strict=True)]
        each = [index_batches(order, batch_size, least=least) for order in orders]
        for indices in zip(*each, strict=True):
            yield self.part(indices)

    def part(self, indices: Sequence[Tensor]) -> Part:
        """The pairs numbered ``indices``, (b_r,) for each member."""
        counts = [len(index) for index in indices]
        index, a = _padded(indices), self.answers
        rows = torch.cat([a.i.gather(1, index), a.j.gather(1, index)], dim=1)
        weight, share = a.weight.gather(1, index), None
        if min(counts) < max(counts):
            b = index.shape[1]
            share = _padded([weight.new_full((n,), b / n) for n in counts])
            weight, share = weight * share, torch.cat([share, share], dim=1)
        annotator = None if a.annotator is None else a.annotator.gather(1, index)
        labels = None if self.labels is None else self.labels.gather(1, rows)
        return Part(rows, a.similar.gather(1, index), annotator, weight, labels, share)

    def step_losses(self, part: Part) -> Tensor:
        """Each member's objective, per answer, (R,)."""
        return self.objective(part, self.volumes, self.answers.total)

    @torch.no_grad()
    def probe(self, pairs: Sequence[PairTensors]) -> list[Probe]:
        """Score every member on pairs of its own, without dropout."""
        x, K, R = self.pairs.in_memory, self.like.membership.n_clusters, self.size
        a = MemberPairs.of(pairs)
        touched = torch.zeros(R, len(x), dtype=torch.bool, device=x.device)
        for seen, own in zip(touched, pairs, strict=True):
            seen[own.i] = seen[own.j] = True
        # Each member's own items, (R, n), item 0, which counts for nothing, where it has fewer; and where an item stands among them.
        rows = _padded([seen.nonzero().squeeze(1) for seen in touched])
        place, count = touched.cumsum(1) - 1, touched.sum(1)
        n, widest = rows.shape[1], max(max(w.shape[-2:]) for w, _ in self.layers)
        parts = rows.split(max(1, CHUNK // (R * widest)), dim=1)
        F = torch.cat([torch.softmax(scores(self.layers, x[part]), -1) for part in parts], dim=1)
        member, total = torch.arange(R, device=x.device)[:, None], x.new_zeros(R)
        for columns in torch.arange(a.i.shape[1], device=x.device).split(max(1, CHUNK // (R * K * K))):
            i, j = place.gather(1, a.i[:, columns]), place.gather(1, a.j[:, columns])
            annotator = None if a.annotator is None else a.annotator[:, columns]
            nll = answer_nll(self.answer_logits(F[member, i], F[member, j], annotator), a.similar[:, columns])
            total = total + (nll * a.weight[:, columns]).sum(1)
        nll = total / x.new_tensor([len(p) for p in pairs])
        share = (torch.arange(n, device=x.device) < count[:, None]) * (n / count.double())[:, None]
        counted = F * share.sqrt().to(F)[..., None]
        gram = counted.double().mT @ counted.double() / n
        smallest = torch.linalg.eigvalsh(torch.nan_to_num(gram))[:, 0]
        values = torch.stack([nll.double(), log_volume(counted), smallest, count.double()], dim=1).tolist()
        return [Probe(n, v, low if c >= K else math.inf) for n, v, low, c in values]


def _places(model: AnnotationModel, guide: PyroModule) -> dict[str, Tensor]:
    """Where a program and its guide keep what the stack calls ``raw``, ``rates``, ``shift`` and ``partition``."""
    names = {
        "confusion.raw": "raw",
        "confusion.rates": "rates",
        "agreement_logits_unconstrained": "raw",
        "confusion_columns_unconstrained": "raw",
        "annotator_shift_unconstrained": "shift",
        "partition_columns_unconstrained": "partition",
    }
    found = {**dict(model.named_parameters()), **dict(guide.named_parameters())}
    return {names[name]: value for name, value in found.items() if not name.startswith("membership.")}


def _padded(each: Sequence[Tensor]) -> Tensor:
    return pad_sequence(list(each), batch_first=True)
