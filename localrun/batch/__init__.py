"""Many prompts: JSONL in, JSONL out.

    rows     a line of JSON → a request, with its own settings
    output   lines in the order of the input, appended to an interrupted file
    runner   keeps enough rows in flight, however slow the reader is

Knows responders and parameters; knows no engine and no command line.
"""

from localrun.batch.output import ResumedFile, StreamOutput
from localrun.batch.rows import Row, RowReader
from localrun.batch.runner import BatchRunner, Summary

__all__ = ["BatchRunner", "ResumedFile", "Row", "RowReader", "StreamOutput", "Summary"]
