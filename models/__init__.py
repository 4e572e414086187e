"""Pyro programs: the generative models of pdcc. Nothing here trains."""

from pdcc.models.annotation import AnnotationModel, PairBatch, answer_logits, similar_logits
from pdcc.models.confusion import (
    CONFUSIONS,
    AnnotatorConfusion,
    NoConfusion,
    SigmoidConfusion,
    StochasticConfusion,
    make_confusion,
)
from pdcc.models.membership import Membership
from pdcc.models.volume import log_volume

__all__ = [
    "CONFUSIONS",
    "AnnotationModel",
    "AnnotatorConfusion",
    "Membership",
    "NoConfusion",
    "PairBatch",
    "SigmoidConfusion",
    "StochasticConfusion",
    "answer_logits",
    "log_volume",
    "make_confusion",
    "similar_logits",
]
