// Whether a step stays inside the memory that its program was given: the kernels take it at its word.
#include "program.h"

namespace {

enum Problem : int32_t { NONE = 0, TOO_MANY_TOKENS = 1, ROWS = 2, TOKEN = 3, PAGE = 4, LOGIT_ROW = 5 };

constexpr int SLOTS = 16;
constexpr int MAX_REMEMBERED = 16;

bool rows_are_sound(const Step &step) {
    if (step.row_starts[0] != 0 || step.row_starts[step.num_rows] != step.num_tokens) return false;
    for (int64_t r = 0; r < step.num_rows; r++) {
        const int64_t count = (int64_t)step.row_starts[r + 1] - step.row_starts[r];
        if (count < 0 || step.context_lens[r] < count) return false;
    }
    return true;
}

bool all_within(const int32_t *numbers, int64_t count, int64_t end) {
    for (int64_t i = 0; i < count; i++)
        if (numbers[i] < 0 || numbers[i] >= end) return false;
    return true;
}

// What an instruction asks of the page tables: each row's pages from `window` tokens before its first new one, all if 0.
struct Demand {
    int64_t group;
    int64_t window;
    int64_t num_pages;

    bool operator==(const Demand &other) const {
        return group == other.group && window == other.window && num_pages == other.num_pages;
    }
};

bool pages_are_held(const Step &step, const Demand &demand) {
    const PageTables &tables = step.tables[demand.group];
    for (int64_t r = 0; r < step.num_rows; r++) {
        const int64_t count = step.row_starts[r + 1] - step.row_starts[r], end = step.context_lens[r];
        if (!count) continue;
        const int64_t begin = demand.window && end - count >= demand.window ? end - count - demand.window + 1 : 0;
        const int64_t first = begin / SLOTS, last = (end - 1) / SLOTS;
        if (last >= tables.stride) return false;
        if (!all_within(tables.pages + r * tables.stride + first, last + 1 - first, demand.num_pages)) return false;
    }
    return true;
}

}  // namespace

extern "C" int32_t pagoda_check_step(const Program *program, const Step *step, const Limits *limits) {
    if (step->num_tokens > limits->max_tokens || step->num_logit_rows > limits->max_tokens) return TOO_MANY_TOKENS;
    if (!rows_are_sound(*step)) return ROWS;
    if (!all_within(step->logit_rows, step->num_logit_rows, step->num_tokens)) return LOGIT_ROW;
    Demand met[MAX_REMEMBERED];
    int num_met = 0;
    for (int64_t i = 0; i < program->num_instructions; i++) {
        const Instruction &in = program->instructions[i];
        if (in.operation == OP_EMBED) {
            const PackedWeight &weight = program->weights[in.arguments[0]];
            if (!all_within(step->token_ids, step->num_tokens, weight.num_rows)) return TOKEN;
        }
        if (in.operation != OP_WRITE && in.operation != OP_ATTENTION) continue;
        const int64_t window = in.operation == OP_WRITE ? 1 : in.arguments[5];
        const Demand demand{in.arguments[3], window, limits->num_pages[in.arguments[2]]};
        bool known = false;
        for (int m = 0; m < num_met; m++) known = known || met[m] == demand;
        if (known) continue;  // layers of one group ask the same
        if (demand.group >= limits->num_groups || !pages_are_held(*step, demand)) return PAGE;
        if (num_met < MAX_REMEMBERED) met[num_met++] = demand;
    }
    return NONE;
}
