// The kernels for any machine.
#include "simd_scalar.h"

#include "instructions.inc"
#include "sampling.inc"

RunInstruction scalar_kernels() { return run_instruction; }
Samplers scalar_samplers() { return {sampling::sample_row, sampling::score_entry}; }
