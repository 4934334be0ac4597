"""The thesis's predictor: a straight line through the samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mean_ahead(seconds: NDArray[np.float64], usage: NDArray[np.float64], horizon: float) -> NDArray[np.float64]:
    """Mean over the next `horizon` seconds of the line fitted through the samples.

    Args:
        seconds: (n,) when samples were taken, before now, so 0 or less.
        usage: (n, k) the samples of k quantities.
        horizon: seconds ahead.

    Returns:
        (k,): the means. The mean of a line over a span is its value in the middle of it.
    """
    # scikit-learn takes over a second to import: who only reads a forecast or a setting shall not wait for it.
    from sklearn.linear_model import LinearRegression  # noqa: PLC0415 - see above

    line = LinearRegression().fit(seconds.reshape(-1, 1), usage)
    predicted: NDArray[np.float64] = line.predict(np.array([[horizon / 2]]))[0]
    return predicted
