"""Other tools' formats: trace viewers so far."""

from hocket.interop.perfetto import (
    TIMELINE_FORMAT,
    load_timeline,
    save_timeline,
    timeline_document,
    timeline_from_document,
)

__all__ = [
    "TIMELINE_FORMAT",
    "load_timeline",
    "save_timeline",
    "timeline_document",
    "timeline_from_document",
]
