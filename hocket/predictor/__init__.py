"""What any number of workers and servers will reach, from one worker's profile."""

from hocket.predictor.machines import Machines
from hocket.predictor.prediction import Prediction
from hocket.predictor.predictions import Predictions
from hocket.predictor.request import Mode
from hocket.predictor.sweep import Engine, predict

__all__ = ["Engine", "Machines", "Mode", "Prediction", "Predictions", "predict"]
