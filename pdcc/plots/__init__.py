"""Pictures. Each function takes and returns a matplotlib Axes, or a Figure where it draws several panels."""

from pdcc.plots.criticism import plot_calibration, plot_loo, plot_predictive, plot_sbc
from pdcc.plots.experiments import plot_asking, plot_bank, plot_bars, plot_bench, plot_differences, plot_study
from pdcc.plots.fit import (
    plot_agreement,
    plot_confusion,
    plot_history,
    plot_learning_curve,
    plot_purest,
    plot_selection,
    plot_simplex,
)
from pdcc.plots.planar import plot_map
from pdcc.plots.trust import plot_accuracy, plot_outlook, plot_purity, plot_reliability

__all__ = [
    "plot_accuracy",
    "plot_agreement",
    "plot_asking",
    "plot_bank",
    "plot_bars",
    "plot_bench",
    "plot_calibration",
    "plot_confusion",
    "plot_differences",
    "plot_history",
    "plot_learning_curve",
    "plot_loo",
    "plot_map",
    "plot_outlook",
    "plot_predictive",
    "plot_purest",
    "plot_purity",
    "plot_reliability",
    "plot_sbc",
    "plot_selection",
    "plot_simplex",
    "plot_study",
]
