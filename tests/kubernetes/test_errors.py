"""What an answer that is no success means."""

from __future__ import annotations

import pytest

from kinema_kubernetes import errors
from kinema_kubernetes.errors import KubernetesError, error_of, object_of

PATH = "/apis/apps/v1/namespaces/shop/deployments/web"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (302, b"", errors.UnavailableError),
        (400, b"{}", errors.InvalidError),
        (401, b"{}", errors.DeniedError),
        (403, b"{}", errors.DeniedError),
        (404, b"404 page not found\n", errors.UnavailableError),
        (404, b'{"kind": "Status", "reason": "NotFound"}', errors.NotFoundError),
        (405, b"{}", errors.InvalidError),
        (409, b"{}", errors.ConflictError),
        (410, b"{}", errors.ExpiredError),
        (422, b"{}", errors.RefusedError),
        (403, b'{"message": "admission webhook \\"x\\" denied the request: no"}', errors.RefusedError),
        (429, b"{}", errors.ThrottledError),
        (429, b'{"details": {"causes": [{"reason": "DisruptionBudget"}]}}', errors.BudgetError),
        (500, b"{}", errors.UnavailableError),
        (504, b"<html>", errors.UnavailableError),
    ],
)
def test_every_status_has_one_class(status: int, body: bytes, kind: type[KubernetesError]) -> None:
    """By status, and where that is not enough, by what the body says."""
    assert type(error_of(f"GET {PATH}", status, body, {})) is kind


def test_an_error_carries_what_it_is_about() -> None:
    """Kind, namespace and name of the object, HTTP status, the server's reason and its wish to be left alone."""
    body = b'{"kind": "Status", "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}'
    error = error_of(f"PATCH {PATH}", 429, body, {})
    assert (error.kind, error.namespace, error.name) == ("deployments", "shop", "web")
    assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 3)
    assert error_of(f"PATCH {PATH}", 429, body, {"Retry-After": "7"}).retry_after == 7


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/api/v1/nodes/n1", ("nodes", "", "n1")),
        ("/api/v1/namespaces/shop", ("namespaces", "", "shop")),
        ("/api/v1/namespaces/shop/pods", ("pods", "shop", "")),
        ("/api/v1/namespaces/shop/pods/web-0/eviction", ("pods", "shop", "web-0")),
        ("/apis/policy/v1/poddisruptionbudgets", ("poddisruptionbudgets", "", "")),
        ("/version", ("", "", "")),
    ],
)
def test_a_path_names_its_object(path: str, named: tuple[str, str, str]) -> None:
    """In a namespace or not, one or all."""
    assert object_of(path) == named
