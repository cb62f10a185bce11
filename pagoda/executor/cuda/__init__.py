"""Runs plans on a CUDA device. This folder and `kernels/cuda` alone import torch."""
