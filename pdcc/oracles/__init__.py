"""Machines as annotators: a language model or a rule that answers pairs, each of them paid for once."""

from pdcc.errors import OracleError, TemporaryOracleError
from pdcc.oracles.ask import MachineAnswers, ask
from pdcc.oracles.families import annotator_id, share_families
from pdcc.oracles.protocol import Oracle, Reply

__all__ = [
    "MachineAnswers",
    "Oracle",
    "OracleError",
    "Reply",
    "TemporaryOracleError",
    "annotator_id",
    "ask",
    "share_families",
]
