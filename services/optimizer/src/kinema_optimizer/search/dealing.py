"""Compiled inner loops of the first plan: pods dealt to nodes of one kind, and best fit of what is left over."""

from __future__ import annotations

import numpy as np

from kinema_optimizer.columns.compiled import kernel


@kernel
def _roomiest(request, left):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - compiled: numba infers types
    """Nodes by their room in the direction of a request: whoever goes first there fills what is emptiest."""
    nodes, rows = left.shape
    score = np.zeros(nodes)
    for r in range(rows):
        unit = float(request[r]) / (1.0 + float(left[0, r]) ** 2)
        for b in range(nodes):
            score[b] -= unit * float(left[b, r])
    return np.argsort(score, kind="mergesort")


@kernel
def distribute_evenly(requests, counts, most, left, content):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901 - compiled: numba infers types
    """Deal pods to nodes of one kind so that all get the same mix; largest classes first, as the caller orders them.

    Args:
        requests: (n, R).
        counts: (n,) pods; what finds no room is left in it.
        most: (n,) most pods of the class on one node.
        left: (B, R) room of the nodes, lowered.
        content: (B, n) pods on the nodes, raised.
    """
    nodes, rows = left.shape
    for c in range(len(counts)):
        each = min(counts[c] // nodes, most[c])
        if each > 0:
            for b in range(nodes):
                fits = each
                for r in range(rows):
                    if requests[c, r] > 0:
                        fits = min(fits, left[b, r] // requests[c, r])
                if fits > 0:
                    content[b, c] += fits
                    counts[c] -= fits
                    for r in range(rows):
                        left[b, r] -= fits * requests[c, r]
        given = 1
        while counts[c] > 0 and given:
            given = 0
            for b in _roomiest(requests[c], left):
                fits = counts[c] > 0 and content[b, c] < most[c]
                for r in range(rows):
                    fits = fits and requests[c, r] <= left[b, r]
                if fits:
                    content[b, c] += 1
                    counts[c] -= 1
                    given += 1
                    for r in range(rows):
                        left[b, r] -= requests[c, r]


@kernel
def best_fit(requests, counts, most, row, left, content):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901 - compiled: numba infers types
    """Put pods where least room is left afterwards; classes in the order given. What finds no room stays in `counts`.

    Args:
        requests: (n, R).
        counts: (n,) pods to place, lowered.
        most: (A, n) most pods of the class on one node, per kind of node.
        row: (B,) kind of each node.
        left: (B, R) room of the nodes, lowered.
        content: (B, n) pods on the nodes, raised.
    """
    nodes, rows = left.shape
    size = np.ones(rows)
    for b in range(nodes):
        for r in range(rows):
            size[r] = max(size[r], left[b, r])
    rest = np.empty(nodes)
    for c in range(len(counts)):
        if counts[c] <= 0:
            continue
        for b in range(nodes):
            rest[b] = 0.0 if content[b, c] < most[row[b], c] else np.inf
            for r in range(rows):
                gap = left[b, r] - requests[c, r]
                rest[b] += gap / size[r] if gap >= 0 else np.inf
        while counts[c] > 0:
            where = np.argmin(rest)
            if rest[where] == np.inf:
                break
            fits = min(counts[c], most[row[where], c] - content[where, c])
            for r in range(rows):
                if requests[c, r] > 0:
                    fits = min(fits, left[where, r] // requests[c, r])
            content[where, c] += fits  # the tightest node is so until no other pod fits
            counts[c] -= fits
            for r in range(rows):
                left[where, r] -= fits * requests[c, r]
            rest[where] = np.inf
