"""The diagnosis of a traced job: where its steps' time goes, what plans and more ranks change about it."""

from hocket.diagnosis.job_diagnosis import Diagnosis, RankTimes, diagnose

__all__ = ["Diagnosis", "RankTimes", "diagnose"]
