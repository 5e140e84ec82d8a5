"""Sheets of hardware and models, and the cost of a step that follows from them.

`hardware_sheet` and `model_sheet` read them, `roofline_cost` makes a StepCost of two of them,
`kv_blocks` says how much cache fits, `adjusted` and `fit_constants` bring a sheet to what was observed.
"""

from engine_adapter.simulator.sheets.fitting import Fitted, StepSample, fit_constants, fit_steps
from engine_adapter.simulator.sheets.hardware import Hardware, adjusted, hardware_names, hardware_sheet
from engine_adapter.simulator.sheets.memory import kv_blocks
from engine_adapter.simulator.sheets.model_files import model_names, model_sheet
from engine_adapter.simulator.sheets.models import Model
from engine_adapter.simulator.sheets.roofline import roofline_cost

__all__ = ["Fitted", "Hardware", "Model", "StepSample", "adjusted", "fit_constants", "fit_steps",
           "hardware_names", "hardware_sheet", "kv_blocks", "model_names", "model_sheet", "roofline_cost"]
