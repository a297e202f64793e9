"""Where jobs come from: the contention paper's generator, and published traces, one importer a file."""

from hocket.cluster.workloads.buckets import overlapped
from hocket.cluster.workloads.paper import paper_workload
from hocket.cluster.workloads.registry import IMPORTERS, import_trace
from hocket.cluster.workloads.trace import Imported

__all__ = ["IMPORTERS", "Imported", "import_trace", "overlapped", "paper_workload"]
