"""Operators on an NVIDIA GPU, written in Triton: one operator a file.

Tensors in, results into buffers that the caller gives. Nothing here waits for the device, and every launch may be
captured in a CUDA graph: sizes that change from step to step are read on the device.
"""
