"""pdcc: probabilistic deep constrained clustering. Memberships from features and noisy same/different answers."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

# In a checkout models/ and inference/ lie beside this directory: a script there finds this package before an installed one.
if not (Path(__file__).parent / "models").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

if TYPE_CHECKING:
    from pdcc import datasets, metrics
    from pdcc.data.answers import PairAnswers
    from pdcc.data.pairs import PairData
    from pdcc.data.reading import ReadAnswers, read_answers
    from pdcc.errors import ArtifactError, PairDataError
    from pdcc.estimator import VanillaDCC, VolMaxDCC
    from pdcc.fitted import Fitted
    from pdcc.identifiability.diagnose import Diagnosis, diagnose
    from pdcc.identifiability.ssc import SSCResult, check_ssc
    from pdcc.select.count import Selection
    from pdcc.select.sweep import select_dropout, select_n_clusters, select_volume

# Where each name is. Loaded when first used, so that `import pdcc` costs no torch.
_HOMES = {
    "ArtifactError": "pdcc.errors",
    "Diagnosis": "pdcc.identifiability.diagnose",
    "Fitted": "pdcc.fitted",
    "PairAnswers": "pdcc.data.answers",
    "PairData": "pdcc.data.pairs",
    "PairDataError": "pdcc.errors",
    "ReadAnswers": "pdcc.data.reading",
    "SSCResult": "pdcc.identifiability.ssc",
    "Selection": "pdcc.select.count",
    "VanillaDCC": "pdcc.estimator",
    "VolMaxDCC": "pdcc.estimator",
    "check_ssc": "pdcc.identifiability.ssc",
    "datasets": "",
    "diagnose": "pdcc.identifiability.diagnose",
    "metrics": "",
    "read_answers": "pdcc.data.reading",
    "select_dropout": "pdcc.select.sweep",
    "select_n_clusters": "pdcc.select.sweep",
    "select_volume": "pdcc.select.sweep",
}

__all__ = [
    "ArtifactError",
    "Diagnosis",
    "Fitted",
    "PairAnswers",
    "PairData",
    "PairDataError",
    "ReadAnswers",
    "SSCResult",
    "Selection",
    "VanillaDCC",
    "VolMaxDCC",
    "__version__",
    "check_ssc",
    "datasets",
    "diagnose",
    "metrics",
    "read_answers",
    "select_dropout",
    "select_n_clusters",
    "select_volume",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("pdcc")
    elif name in _HOMES:
        home = _HOMES[name]
        value = getattr(import_module(home), name) if home else import_module(f"pdcc.{name}")
    else:
        raise AttributeError(f"module 'pdcc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
