"""The predictor: throughput of any number of workers and servers, from one worker's profile."""

from hocket.predictor.configurations import Engine, predict
from hocket.predictor.machines import Machines
from hocket.predictor.prediction import Prediction
from hocket.predictor.prediction_request import Mode
from hocket.predictor.predictions import Predictions

__all__ = ["Engine", "Machines", "Mode", "Prediction", "Predictions", "predict"]
