// What one instruction set's lanes say of sixteen pairs of numbers; compiled once for each set that is compared.
#include LANES

#include "half.h"

constexpr int NUM_RESULTS = 11;

// `out` takes NUM_RESULTS rows of sixteen.
void SAY(const float *x, const float *y, float *out) {
    const Lanes a = load(x), b = load(y);
    uint16_t halves[16];
    int8_t bytes[16];
    to_half(halves, a);
    to_int8(bytes, nearest(min(max(b, set1(-127.0f)), set1(127.0f))));
    const Lanes all[NUM_RESULTS] = {max(a, b), min(a, b), nearest(a), absolute(a), from_half(halves), from_int8(bytes),
                                    zero_below(a, b, y[0]), zero_where_greater(a, a, b), set1(fold_max(a)), set1(fold_add(b)),
                                    set1((float)where_greater(a, b))};
    for (int i = 0; i < NUM_RESULTS; i++) store(out + 16 * i, all[i]);
}
