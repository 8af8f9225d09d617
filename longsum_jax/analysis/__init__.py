"""Figures, kernels, device memory, and plans of compiled programs."""
