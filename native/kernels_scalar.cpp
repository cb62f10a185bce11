// The kernels for any machine.
#include "simd_scalar.h"

#include "instructions.inc"

RunInstruction scalar_kernels() { return run_instruction; }
