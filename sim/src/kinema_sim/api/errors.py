"""Refusals of the API server."""

from kinema_sim.engine.kinds import Kind
from kinema_sim.engine.objects import Obj

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """A request that the API server refuses.

    Args:
        code: HTTP status.
        message: what is wrong, for people.
        reason: the word for machines; follows from the code when not given.
        details: the Status object's details.
        metadata: the Status object's metadata (a new continue token of an expired list).
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Obj | None = None,
        metadata: Obj | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "")
        self.details = details
        self.metadata = metadata or {}

    def status(self) -> Obj:
        """Give the refusal as the API's Status object."""
        body: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details is not None:
            body["details"] = self.details
        return body


def about(kind: Kind, name: str) -> Obj:
    """Give the details that name an object."""
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    """Return the refusal of an object that does not exist."""
    return ApiError(404, f'{kind.qualified} "{name}" not found', details=about(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """Return the refusal of a write to an object that has changed."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, message, details=about(kind, name))


def invalid(kind: Kind, name: str, *, field: str, why: str) -> ApiError:
    """Return the refusal of an invalid object."""
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": field}]
    message = f'{kind.name} "{name}" is invalid: {field}: {why}'
    return ApiError(422, message, details={**about(kind, name), "causes": causes})
