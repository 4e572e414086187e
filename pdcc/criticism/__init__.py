"""Model criticism: predictive checks, calibration, leave-one-out and simulation-based calibration."""

from pdcc.criticism.calibration import Calibration, check_calibration, run_calibration
from pdcc.criticism.loo import Loo, check_loo, run_loo
from pdcc.criticism.predictive import Predictive, Statistic, check_predictive, run_predictive
from pdcc.criticism.sbc import SBC, check_sbc, run_sbc

__all__ = [
    "SBC",
    "Calibration",
    "Loo",
    "Predictive",
    "Statistic",
    "check_calibration",
    "check_loo",
    "check_predictive",
    "check_sbc",
    "run_calibration",
    "run_loo",
    "run_predictive",
    "run_sbc",
]
