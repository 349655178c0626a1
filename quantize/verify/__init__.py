"""What quantization did to a model: measured in lock-step with the model it was made from."""

from quantize.verify.lockstep import Evaluation, SliceResult, evaluate
from quantize.verify.scores import Scores, Statistics

__all__ = ["Evaluation", "Scores", "SliceResult", "Statistics", "evaluate"]
