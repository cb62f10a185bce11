#include <algorithm>
#include <numeric>

#include "program.h"

void order_rows(const Step &step, const PageTables &tables) {
    std::iota(tables.order, tables.order + step.num_rows, 0);
    std::sort(tables.order, tables.order + step.num_rows, [&](int32_t a, int32_t b) {
        const int32_t *first = tables.pages + a * tables.stride, *second = tables.pages + b * tables.stride;
        return std::lexicographical_compare(first, first + tables.stride, second, second + tables.stride);
    });
}
