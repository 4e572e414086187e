"""Pyro programs: the generative models of pdcc. Nothing here trains."""

from pdcc.models.annotation import AnnotationModel, PairBatch
from pdcc.models.confusion import (
    CONFUSIONS,
    AnnotatorConfusion,
    Confusion,
    NoConfusion,
    PooledConfusion,
    RatesConfusion,
    SigmoidConfusion,
    SigmoidPriorConfusion,
    StochasticConfusion,
    make_confusion,
)
from pdcc.models.membership import Membership, NetworkMembership
from pdcc.models.modules import Module, normal_weights_, plain_weights
from pdcc.models.objective import answer_logits, similar_logits
from pdcc.models.volume import log_volume

__all__ = [
    "CONFUSIONS",
    "AnnotationModel",
    "AnnotatorConfusion",
    "Confusion",
    "Membership",
    "Module",
    "NetworkMembership",
    "NoConfusion",
    "PairBatch",
    "PooledConfusion",
    "RatesConfusion",
    "SigmoidConfusion",
    "SigmoidPriorConfusion",
    "StochasticConfusion",
    "answer_logits",
    "log_volume",
    "make_confusion",
    "normal_weights_",
    "plain_weights",
    "similar_logits",
]
