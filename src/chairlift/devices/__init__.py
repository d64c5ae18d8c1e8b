"""Device models: how long a step takes and how much memory there is, calibrated, fitted to a table, or analytic."""

from chairlift.devices.analytic import analytic_model
from chairlift.devices.file import load_device_model, parse_device_model, render_device_model, save_device_model
from chairlift.devices.fit import Fit, fit_host, fit_step, tabulate
from chairlift.devices.from_table import GroupFit, fit_group
from chairlift.devices.memory import MemoryModel, MemoryPlan
from chairlift.devices.model import DeviceModel, HostTerms, Provenance, StepTerms
from chairlift.devices.registry import device_names, find_config, find_device_model, find_sheet, model_names
from chairlift.devices.samples import Sample, TermError
from chairlift.devices.shape import StepShape
from chairlift.devices.sheet import DeviceSheet, Figure, cpu_sheet
from chairlift.devices.table import Columns, MeasuredGroup, MeasuredTable, measured_table, read_table
from chairlift.devices.transformer import TransformerConfig, load_config, parse_config
from chairlift.devices.valid import RangeGuard, ValidRange

__all__ = [
    "Columns",
    "DeviceModel",
    "DeviceSheet",
    "Figure",
    "Fit",
    "GroupFit",
    "HostTerms",
    "MeasuredGroup",
    "MeasuredTable",
    "MemoryModel",
    "MemoryPlan",
    "Provenance",
    "RangeGuard",
    "Sample",
    "StepShape",
    "StepTerms",
    "TermError",
    "TransformerConfig",
    "ValidRange",
    "analytic_model",
    "cpu_sheet",
    "device_names",
    "find_config",
    "find_device_model",
    "find_sheet",
    "fit_group",
    "fit_host",
    "fit_step",
    "load_config",
    "load_device_model",
    "measured_table",
    "model_names",
    "parse_config",
    "parse_device_model",
    "read_table",
    "render_device_model",
    "save_device_model",
    "tabulate",
]
