"""Workloads: that of the contention paper (Wang et al. 2020), and published traces, one importer a file."""

from hocket.cluster.workloads.named_traces import IMPORTERS, import_trace
from hocket.cluster.workloads.overlapped_batches import with_overlap
from hocket.cluster.workloads.paper_workload import paper_workload
from hocket.cluster.workloads.trace_jobs import ImportedJobs, TraceRequest

__all__ = ["IMPORTERS", "ImportedJobs", "TraceRequest", "import_trace", "paper_workload", "with_overlap"]
