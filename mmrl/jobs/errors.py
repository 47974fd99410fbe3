"""What goes wrong between a command or a worker and the job database."""

from __future__ import annotations

from mmrl.errors import EXIT_WRONG_USE, ConflictError, MmrlError


class DatabaseUnavailableError(MmrlError):
    """The database cannot be reached, or stayed locked too long. Nothing was written; the same call may work later."""


class SchemaError(MmrlError):
    """The database has another schema version than this code; the message names the command that mends it."""


class LeaseLostError(ConflictError):
    """The job is no longer this worker's: its lease ran out, another took it over, or it reached another state.

    Nothing was written. A worker that finds a newer `lease_epoch` (see `LeaseView.is_superseded`) stops its child.
    """


class ForbiddenError(MmrlError):
    """The user's role, or the token's scope, does not allow this."""

    exit_code = EXIT_WRONG_USE
