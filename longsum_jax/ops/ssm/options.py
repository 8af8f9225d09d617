"""Names of the choices of state-space layers, which configs also need."""

from typing import Literal

Backend = Literal["fft", "matmul"]
Discretization = Literal["zoh", "none"]
StepInit = Literal["log_uniform", "uniform"]
InputInit = Literal["one", "normal"]
