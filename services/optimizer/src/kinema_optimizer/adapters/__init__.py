"""The integer programs and the solver behind them: the only place that knows HiGHS."""
