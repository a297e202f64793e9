"""Examining a machine or a job before it trains: what its ranks have, and whether they train as DDP does."""

from hocket.doctor.doctor import examine
from hocket.doctor.examination import Examination, examination_document

__all__ = ["Examination", "examination_document", "examine"]
