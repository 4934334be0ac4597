"""Compiled inner loops of the first plan: pods dealt to nodes of one kind, and best fit of what is left over."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def deal(requests, counts, most, left, content):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, C901, PLR0912 - compiled: numba infers types
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
        while counts[c] > 0:
            best, where = -1.0, -1
            for b in range(nodes):
                if content[b, c] >= most[c]:
                    continue
                score = 0.0
                for r in range(rows):
                    if requests[c, r] > left[b, r]:
                        score = -1.0
                        break
                    # Leftover room in the direction of the request: fills what is emptiest where the pod needs most.
                    score += float(requests[c, r]) * float(left[b, r]) / (1.0 + float(left[0, r]) ** 2)
                if score > best:
                    best, where = score, b
            if where < 0:
                break
            content[where, c] += 1
            counts[c] -= 1
            for r in range(rows):
                left[where, r] -= requests[c, r]


@njit(cache=True, nogil=True)
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
    for c in range(len(counts)):
        while counts[c] > 0:
            least, where = np.inf, -1
            for b in range(nodes):
                if content[b, c] >= most[row[b], c]:
                    continue
                rest = 0.0
                for r in range(rows):
                    if requests[c, r] > left[b, r]:
                        rest = np.inf
                        break
                    rest += (left[b, r] - requests[c, r]) / size[r]
                if rest < least:
                    least, where = rest, b
            if where < 0:
                break
            content[where, c] += 1
            counts[c] -= 1
            for r in range(rows):
                left[where, r] -= requests[c, r]
