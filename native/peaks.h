// What a machine can do at most: the ceilings that the kernels are held against.
#pragma once

#include <cstdint>

// Each does so many rounds on one thread and says how many operations that was, a product and its sum being two.
struct Peaks {
    int64_t (*singles)(int64_t num_rounds);
    int64_t (*bytes)(int64_t num_rounds);
};
