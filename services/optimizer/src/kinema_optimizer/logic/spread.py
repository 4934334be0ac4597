"""Which offers an enforced topology spread closes.

Pods that a spread over zones counts stay in their zone. But a new node can be a new domain, in which none of them runs,
and then the fewest pods of any domain are none: what was even before breaks the rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from kinema_optimizer.logic.admission import Site
from kinema_optimizer.logic.between import Census, Even


def closed_by_spread(rules: Iterable[Even], census: Census, offers: Iterable[Site]) -> frozenset[str]:
    """Names of the offers whose new nodes would break a spread constraint that holds now, or worsen a broken one."""
    sites = tuple(offers)
    return frozenset(name for even in rules for name in _closed(even, census, sites))


def _closed(even: Even, census: Census, offers: tuple[Site, ...]) -> Iterable[str]:
    counts, key, domains = census.counts(even.counted), even.counted.key, census.domains(even)
    fresh = [site for site in offers if site.labels.get(key) not in domains and even.admits(site)]
    # Pods on nodes that do not count are in a domain that a new node would make count.
    most = max([census.most(even), *(counts[site.labels[key]] for site in fresh)])
    fewest = census.fewest(even)
    allowed = max(even.max_skew, census.skew(even))
    return [site.name for site in fresh if most - min(fewest, counts[site.labels[key]]) > allowed]
