"""Throughput prediction: Figures 2, 3c, 10, 12 to 14, 17 to 25 and Table 1.

Source: Li et al., "Throughput Prediction of Asynchronous SGD in TensorFlow" (ICPE 2020).
"""

from hocket.reproduce.prediction.prediction_plots import reproduce

__all__ = ["reproduce"]
