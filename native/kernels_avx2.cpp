// The kernels for AVX2; nothing in this file may run before the machine was asked whether it has it.
#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "simd_avx2.h"

#include "instructions.inc"
#include "peaks.inc"
#include "sampling.inc"

RunInstruction avx2_kernels() { return run_instruction; }
Samplers avx2_samplers() { return {sampling::sample_row, sampling::score_entry}; }
Peaks avx2_peaks() { return {peaks::singles, peaks::bytes}; }
#endif
