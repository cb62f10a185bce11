// The kernels for any machine.
#include "simd_scalar.h"

#include "instructions.inc"
#include "peaks.inc"
#include "sampling.inc"

RunInstruction scalar_kernels() { return run_instruction; }
Samplers scalar_samplers() { return {sampling::sample_row, sampling::score_entry}; }
Peaks scalar_peaks() { return {peaks::singles, peaks::bytes}; }
