"""Functions with more than seven parameters, and the reason for each."""

from __future__ import annotations

PUBLIC = "public function, keyword-only options that scripts outside call"

LONG_SIGNATURES = {
    "predictor/configurations.py: predict": PUBLIC,
    "profiler/torch_step.py: profile": PUBLIC,
    "sim/simulation.py: simulate": PUBLIC,
    "tuner/distribute.py: distribute": PUBLIC,
    "tuner/policies.py: plan": PUBLIC,
    "tuner/ranking.py: tune": PUBLIC,
}
