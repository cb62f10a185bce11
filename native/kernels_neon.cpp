// The kernels for every 64-bit ARM.
#if defined(__aarch64__)
#include "simd_neon.h"

#include "instructions.inc"
#include "peaks.inc"
#include "sampling.inc"

RunInstruction neon_kernels() { return run_instruction; }
Samplers neon_samplers() { return {sampling::sample_row, sampling::score_entry}; }
Peaks neon_peaks() { return {peaks::singles, peaks::bytes}; }
#endif
