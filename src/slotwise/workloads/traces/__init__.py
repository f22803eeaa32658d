"""Traces: one schema, importers for the formats that exist, summaries and tools."""

from slotwise.workloads.traces.formats import FORMATS, import_to_file, import_trace
from slotwise.workloads.traces.importing import ImportReport
from slotwise.workloads.traces.schema import Servers, Trace, TraceMeta, read_trace, write_trace
from slotwise.workloads.traces.summary import Summary, summarise

__all__ = [
    "FORMATS",
    "ImportReport",
    "Servers",
    "Summary",
    "Trace",
    "TraceMeta",
    "import_to_file",
    "import_trace",
    "read_trace",
    "summarise",
    "write_trace",
]
