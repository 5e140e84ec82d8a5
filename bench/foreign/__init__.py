"""Results of other load generators and our own result files, under our names where the definitions agree."""

from bench.foreign.detection import load_result, load_results
from bench.foreign.imported import ImportedFigure, ImportedResult

__all__ = ["ImportedFigure", "ImportedResult", "load_result", "load_results"]
