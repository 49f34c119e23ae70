"""The status of a run, in the words that files store and commands print."""

import enum


class Status(enum.StrEnum):
    """The status of a run; each member is the text itself."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped by event"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    IN_MEMORY = "in memory"
