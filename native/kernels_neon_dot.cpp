// The same with the dot products of ARMv8.2; nothing in this file may run before the machine was asked whether it has them.
#if defined(__aarch64__)
#include "simd_neon.h"

#include "instructions.inc"
#include "peaks.inc"
#include "sampling.inc"

RunInstruction neon_dot_kernels() { return run_instruction; }
Samplers neon_dot_samplers() { return {sampling::sample_row, sampling::score_entry}; }
Peaks neon_dot_peaks() { return {peaks::singles, peaks::bytes}; }
#endif
