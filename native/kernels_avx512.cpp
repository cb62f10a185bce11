// The kernels for AVX512; nothing in this file may run before the machine was asked whether it has it.
#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "simd_avx512.h"

#include "instructions.inc"
#include "peaks.inc"
#include "sampling.inc"

RunInstruction avx512_kernels() { return run_instruction; }
Samplers avx512_samplers() { return {sampling::sample_row, sampling::score_entry}; }
Peaks avx512_peaks() { return {peaks::singles, peaks::bytes}; }
#endif
