"""Starting the processes of a job, watching them, and what all of them know."""

from hocket.launch.job import JOB_VARIABLE, Rule, ServedJob, job_of_environment

__all__ = ["JOB_VARIABLE", "Rule", "ServedJob", "job_of_environment"]
