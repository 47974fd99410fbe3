"""The errors that mmrl raises on purpose. Each carries the exit code that the CLI ends with.

A message says what is wrong, where (file:line, key, row), the value got, what is allowed and what to do.
"""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_NOT_FOUND = 3
EXIT_CONFLICT = 5
EXIT_RUN_FAILED = 6
EXIT_RUN_CANCELLED = 7
EXIT_INTERRUPTED = 130


class MmrlError(Exception):
    """Base of all errors that a user can cause or mend; shown without a traceback."""

    exit_code = EXIT_FAILED


class ConfigError(MmrlError):
    """A config file, an override or a combination of settings is wrong."""

    exit_code = EXIT_WRONG_USE


class DataError(MmrlError):
    """A data set, a row or an image is wrong."""

    exit_code = EXIT_WRONG_USE


class ModelError(MmrlError):
    """A model folder is incomplete, or a model does not fit what was asked of it."""

    exit_code = EXIT_WRONG_USE


class NotFoundError(MmrlError):
    """A file, data set, run, sample or checkpoint does not exist."""

    exit_code = EXIT_NOT_FOUND


class ConflictError(MmrlError):
    """Something of that name exists already, or another process owns it."""

    exit_code = EXIT_CONFLICT


class RunFailedError(MmrlError):
    """A run began and could not go on."""

    exit_code = EXIT_RUN_FAILED


class CheckpointWriteError(RunFailedError):
    """A checkpoint could not be written. The run itself may go on, and those of before stay."""


class RunCancelledError(MmrlError):
    """A run was stopped on request."""

    exit_code = EXIT_RUN_CANCELLED
