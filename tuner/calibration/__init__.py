"""The cost of an engine's steps, fitted to the step logs of its runs."""

from tuner.calibration.compare import Comparison, compare
from tuner.calibration.covered import Covered
from tuner.calibration.file import Calibration, load_calibration, save_calibration
from tuner.calibration.making import calibrate
from tuner.calibration.regimes import Regime

__all__ = ["Calibration", "Comparison", "Covered", "Regime", "calibrate", "compare", "load_calibration",
           "save_calibration"]
