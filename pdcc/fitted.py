"""What a fit came to: the trained program, how it was chosen, and which answers it never saw."""

import logging
import math
from dataclasses import asdict, dataclass, field
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from pdcc.arrays import Float64, Floats
from pdcc.data.pairs import PairData, plain_name
from pdcc.data.scaling import Scaler
from pdcc.data.splits import HeldOut, Split
from pdcc.errors import ArtifactError
from pdcc.inference import FitStatus, PairTensors, map_guide, memberships, pair_agreement, point_values
from pdcc.inference.guides import MapGuide
from pdcc.inference.rows import Items, scaled_items
from pdcc.models import AnnotationModel, PairBatch
from pdcc.models.modules import plain_weights, seeded
from pdcc.models.objective import annotator_columns
from pdcc.notebook import as_paragraphs
from pdcc.rows import FeatureRows
from pdcc.training import OWN, OwnParts, Shape, Source, Specification, Start, TrainConfig, build, make_net

logger = logging.getLogger(__name__)

# The premise of all of it: people take at most this share of the items for others.
MOST_WRONG = 0.25
# They call two items of one class similar at least so often.
LEAST_SIMILAR = (1 - MOST_WRONG) ** 2
SCALER_PARTS = ("shift", "spread", "low", "high", "axes")


@dataclass(frozen=True)
class Usefulness:
    """What a fit is good for, without labels.

    held_out, constant: nats per held-out answer of the fit, and of one rate for all pairs; None where nothing was held
    out. sizes: items per cluster. within, across: how often answers say "similar" of pairs within clusters, and across
    them. failures: what is wrong, a sentence each; empty if nothing is.
    """

    held_out: float | None
    constant: float | None
    sizes: tuple[int, ...]
    within: float
    across: float
    failures: tuple[str, ...]

    @property
    def worse_than_null(self) -> bool:
        """It predicts held-out answers worse than one rate for all pairs does."""
        return self.held_out is not None and self.constant is not None and self.held_out > self.constant

    def __str__(self) -> str:
        if self.held_out is None or self.constant is None:
            found = "No answers were held out to judge it by."
        else:
            found = f"Held-out answers: {self.held_out:.3f} nats each (one rate for all pairs: {self.constant:.3f})."
        rates = f"Answers say similar of {self.within:.0%} of the pairs within clusters and {self.across:.0%} across."
        return f"{found} {rates} Cluster sizes {min(self.sizes)} to {max(self.sizes)}."


@dataclass(frozen=True)
class FitReport:
    """What was compared, what was chosen and why, and what the fit is good for.

    held_out: what was held out together; held_out_annotators: their names where it was annotators. n_compared: answers
    that candidates were compared by. scale, start: the scaling, in words, and the partition that training began at, None
    for a random net. own_answers: labels go by items' own answers too. epochs: how many the net was trained for, 0: it
    stands for the partition as it is. compared: one row for each candidate, with its nats per answer.
    """

    held_out: HeldOut
    n_held_out: int
    held_out_annotators: tuple[Any, ...]
    n_compared: int
    scale: str
    start: Start | None
    own_answers: bool
    epochs: int
    compared: tuple[dict[str, Any], ...] = field(repr=False)
    chosen: Specification
    reason: str = field(repr=False)
    useful: Usefulness

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, body: dict[str, Any]) -> "FitReport":
        """Undo ``to_dict``; reports of 0.2 are read too."""
        if "start_kind" in body:
            body = _of_version_02(body)
        useful: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in body["useful"].items()}
        start = body["start"]
        parts = {
            "held_out": HeldOut(body["held_out"]), "held_out_annotators": tuple(body["held_out_annotators"]),
            "start": None if start is None else Start(Source(start["source"]), Shape(start["shape"]), start["moved"]),
            "compared": tuple(body["compared"]), "chosen": Specification(**body["chosen"]), "useful": Usefulness(**useful),
        }  # fmt: skip
        return cls(**(body | parts))

    @property
    def begun(self) -> str:
        """The scaling and the partition that training began at, for people."""
        name = "random net" if self.start is None else str(self.start)
        return f"{self.scale}, {name}"

    def __str__(self) -> str:
        what = f"a net trained for {self.epochs} epochs from {self.begun}" if self.epochs else self.begun
        if self.own_answers:
            what += ", items by their own answers too"
        to_do = "How right the labels are: diagnose."
        if self.useful.failures:
            to_do = " ".join(self.useful.failures)
        elif self.useful.held_out is None:
            to_do = "To judge it, hold answers out: validation_fraction=0.1."
        elif self.useful.worse_than_null:
            to_do = (
                "One rate for all pairs predicts held-out answers as well: ask more pairs before trusting any of it."
            )
        return f"Fitted: {what}; {self.chosen}.\n{self.useful}\n{to_do}"

    def _repr_html_(self) -> str:
        """The same words, for notebooks."""
        return as_paragraphs(str(self))


# The partitions of 0.2, and what is nearest to them.
_SOURCES_02 = {"plain": Source.KMEANS, "guided": Source.GUIDED, "grouped": Source.GRAPH, "constrained": Source.GRAPH}
_SHAPES_02 = {"one shape": Shape.SHARED, "own shapes": Shape.OWN}


def _of_version_02(body: dict[str, Any]) -> dict[str, Any]:
    """The report of a run of 0.2 with the fields of today."""
    old, kind = body["useful"], body["start_kind"]
    parts = [] if kind is None else kind.split(", ")
    start = None
    if parts:
        shape = next((_SHAPES_02[part] for part in parts if part in _SHAPES_02), Shape.NONE)
        start = {"source": _SOURCES_02[parts[0]], "shape": shape, "moved": False}
    useful = {name: old[name] for name in ("held_out", "constant", "sizes", "within", "across")}
    kept = ("held_out", "n_held_out", "held_out_annotators", "epochs", "compared", "chosen", "reason")
    return {name: body[name] for name in kept} | {
        "n_compared": body["n_new"], "scale": body["start"].split(", ")[0], "start": start, "own_answers": False,
        "useful": useful | {"failures": old["trouble"]},
    }  # fmt: skip


@dataclass(frozen=True)
class Fitted:
    """A trained model and all that later steps need to know of the fit.

    model, guide: the Pyro program and its point-estimate guide. config: every "auto" replaced by what was chosen.
    split: which of the fitted answers were held out; ``answers``, their fingerprint, tells whether others are passed.
    own: modules of the user's. annotators: their names, in the order of the model's matrices. agreement: B, (K, K), or one for each annotator and, last, the
    shared one, (R + 1, K, K), on the model's device; the mean over the fitted pairs where it depends on the items.

    Examples:
        >>> import numpy as np
        >>> from pdcc import VanillaDCC
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(3 * np.eye(3), 20, axis=0) + rng.normal(size=(60, 3))
        >>> pairs = rng.integers(60, size=(300, 2))
        >>> similar = (pairs[:, 0] // 20 == pairs[:, 1] // 20) ^ (rng.random(300) < 0.1)  # a tenth is wrong
        >>> est = VanillaDCC(3, hidden=(16,), scale="standard", init="kmeans", epochs=5, random_state=0)
        >>> est = est.fit(X, pairs, similar)
        >>> fitted = est.fitted_
        >>> fitted.config.confusion, fitted.item_shape, fitted.memberships(X).shape
        ('none', (3,), (60, 3))
    """

    model: AnnotationModel
    guide: MapGuide
    agreement: Tensor
    scaler: Scaler
    config: TrainConfig
    split: Split
    answers: str
    annotators: tuple[Any, ...]
    item_shape: tuple[int, ...]
    status: FitStatus
    message: str
    history: list[dict[str, float]]
    report: FitReport
    own: OwnParts

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        parameter: Tensor = next(self.model.parameters())
        return parameter.device

    @property
    def free_confusion(self) -> bool:
        """Whether answers can be explained by confusion instead of memberships."""
        return self.config.confusion != "none"

    @overload
    def scaled(self, features: Floats) -> Tensor: ...

    @overload
    def scaled(self, features: Floats | FeatureRows) -> Items: ...

    def scaled(self, features: Floats | FeatureRows) -> Items:
        """Features (n, d) as the model takes them; a tensor, unless they are too large to be copied."""
        return scaled_items(features, self.scaler, self.device)

    def memberships(self, features: Floats | FeatureRows) -> Float64:
        """Memberships (n, K) of items by their features (n, d)."""
        F: Float64 = memberships(self.model, self.scaled(features)).double().cpu().numpy()
        return np.asarray(F / F.sum(axis=1, keepdims=True))

    def pair_agreement(self, pairs: PairTensors) -> Tensor:
        """B as it applies to pairs with scaled features: (K, K), or one for each, (M, K, K)."""
        return pair_agreement(self.model, self.guide, pairs)

    def confusion(self) -> Float64 | None:
        """The shared A[observed, true] (K, K) where the form has one."""
        columns = point_values(self.guide).get("confusion_columns")
        if columns is not None:
            return np.asarray(columns.T.double().cpu().numpy())
        return None if self.free_confusion else np.eye(self.config.n_clusters)

    def annotator_confusion(self) -> Float64 | None:
        """A of each annotator, (R, K, K), where they are told apart."""
        sites = point_values(self.guide)
        if "annotator_shift" not in sites:
            return None
        own = annotator_columns(sites["confusion_columns"], sites["annotator_shift"])[:-1].mT
        return np.asarray(own.double().cpu().numpy())

    def known(self, data: PairData) -> PairData:
        """The same pairs, annotators numbered as they were fitted where the confusion tells them apart."""
        return data.recode(self.annotators) if "annotator_shift" in point_values(self.guide) else data

    def holds(self, data: PairData) -> bool:
        """Whether these are the answers that were fitted, in their order."""
        return data.fingerprint() == self.answers

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The fit as named tensors and plain JSON."""
        parts = {"model": self.model.state_dict(), "guide": self.guide.state_dict()}
        flat = {f"{part}/{name}": value for part, state in parts.items() for name, value in state.items()}
        flat |= {
            **{f"scaler/{part}": torch.as_tensor(getattr(self.scaler, part)) for part in SCALER_PARTS},
            "split/held": torch.as_tensor(self.split.held),
            "agreement": self.agreement,
        }
        described = {
            "config": asdict(self.config),
            "item_shape": list(self.item_shape),
            "own_network": self.own.network is not None,
            "n_pairs": self.model.n_pairs,
            "total_weight": self.model.total_weight,
            "scale": self.scaler.kind,
            "split_by": self.split.by,
            "answers": self.answers,
            "annotators": [plain_name(a) for a in self.annotators],
            "status": self.status,
            "message": self.message,
            "history": self.history,
            "report": self.report.to_dict(),
        }
        return flat, described

    @classmethod
    def restore(
        cls, flat: dict[str, Tensor], described: dict[str, Any], device: torch.device, own: OwnParts
    ) -> "Fitted":
        """Undo ``state``: rebuild the Pyro program around the stored tensors, and around modules of the user's."""
        config = TrainConfig(**described["config"])
        report = FitReport.from_dict(described["report"])
        for name, was, given in (
            ("network", described["own_network"], own.network),
            ("confusion", config.confusion == OWN, own.confusion),
        ):
            if was and given is None:
                raise ArtifactError(
                    f"{name}: expected the module that was fitted, since a run keeps its weights and no code, found none. Load with {name}=..., made as it was for the fit."
                )
        annotators = tuple(float(a["float"]) if isinstance(a, dict) else a for a in described["annotators"])
        labels = flat["model/partition"]
        shape = tuple(int(n) for n in described["item_shape"])
        scaler = Scaler(described["scale"], *(flat[f"scaler/{part}"].numpy() for part in SCALER_PARTS))
        if any(len(getattr(scaler, part)) != math.prod(shape) for part in SCALER_PARTS):
            raise ValueError("a scaling of other columns")
        with seeded():
            net = make_net(config, scaler.scaled(shape), own).to(device)
            partition = labels.to(device) if len(labels) else None
            known = len(annotators) if any(name.startswith("guide/annotator_shift") for name in flat) else 0
            n_pairs, total = int(described["n_pairs"]), described.get("total_weight")
            total = None if total is None else float(total)
            model = build(net, report.chosen, n_pairs, total, partition, known, own).eval()
            guide = map_guide(model)
            x, rows = (
                torch.zeros((2, *scaler.scaled(shape)), device=device),
                torch.zeros(2, dtype=torch.long, device=device),
            )
            with plain_weights():  # lays out the guide's parameters
                guide(PairBatch(x=x, similar=x.new_zeros(1), index=rows[:1], rows=rows, annotator=rows[:1]))
        for part, module in (("model/", model), ("guide/", guide)):
            module.load_state_dict({k[len(part) :]: v for k, v in flat.items() if k.startswith(part)})
        return cls(
            model=model.eval(),
            guide=guide,
            agreement=flat["agreement"].to(device),
            scaler=scaler,
            config=config,
            split=Split(flat["split/held"].numpy(), HeldOut(described["split_by"])),
            answers=described["answers"],
            annotators=annotators,
            item_shape=shape,
            status=FitStatus(described["status"]),
            message=described["message"],
            history=described["history"],
            report=report,
            own=own,
        )
