"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is slow, not wrong: no example has a deadline.
settings.register_profile("kinema", deadline=None)
settings.load_profile("kinema")
