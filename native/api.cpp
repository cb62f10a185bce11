// What Python calls.
#include <time.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <cstring>

#include "integer.h"
#include "pool.h"
#include "program.h"

RunInstruction scalar_kernels();
#if defined(__x86_64__)
RunInstruction avx2_kernels();
RunInstruction avx512_kernels();
#elif defined(__aarch64__)
RunInstruction neon_kernels();
RunInstruction neon_dot_kernels();
#endif

namespace {

RunInstruction kernels_for(const char *name) {
    if (!std::strcmp(name, "scalar")) return scalar_kernels();
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni");
    if (!std::strcmp(name, "avx2") && avx2) return avx2_kernels();
    if (!std::strcmp(name, "avx512") && avx2 && avx512) return avx512_kernels();
#elif defined(__aarch64__)
    auto has = [](unsigned long features) { return (getauxval(AT_HWCAP) & features) == features; };
    if (!std::strcmp(name, "neon") && has(HWCAP_ASIMD)) return neon_kernels();
    // Of what ARMv8.2 has beyond them, the compiler uses the atomic additions.
    if (!std::strcmp(name, "neon_dot") && has(HWCAP_ASIMD | HWCAP_ASIMDDP | HWCAP_ATOMICS)) return neon_dot_kernels();
#endif
    return nullptr;
}

constexpr int64_t ROW_PIECES_A_THREAD = 8;
constexpr int64_t TILE_ROWS = 12;  // a multiple of every set's INTEGER_TILE

struct Run {
    const Program *program;
    const Step *step;
    RunInstruction kernels;
};

int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Rows that are taken through some instructions together: few, so that they stay near, and a tile of them if they are many.
int64_t rows_at_once(int64_t num_tokens, int num_threads) {
    const int64_t even = num_tokens / (ROW_PIECES_A_THREAD * num_threads);
    return even >= TILE_ROWS ? TILE_ROWS : even > 1 ? even : 1;
}

void run_program(void *context, int thread, int num_threads, Barrier &barrier) {
    const Run &run = *static_cast<Run *>(context);
    const bool is_alone = run.step->num_tokens == 1 && run.step->num_logit_rows <= 1;
    const Worker worker{thread, num_threads, run.step->scratch + thread * run.step->scratch_stride, is_alone, 0, 0};
    const int64_t num_tokens = run.step->num_tokens, piece = rows_at_once(num_tokens, num_threads);
    const int32_t meets = is_alone ? 2 : 1;
    int64_t *times = thread == 0 ? run.step->nanoseconds : nullptr;
    int64_t last = times ? now() : 0;
    auto book = [&](int32_t item) {
        if (!times) return;
        const int64_t time = now();
        times[item] += time - last;
        last = time;
    };
    auto execute = [&](const Instruction &instruction, const Worker &own) {
        run.kernels(*run.program, *run.step, instruction, own);
        book(instruction.operation);
    };
    // Takes some rows after the other through a run of instructions.
    auto execute_run = [&](const Instruction *first, int32_t *claims) {
        Worker own = worker;
        for (;;) {
            own.first_row = __atomic_fetch_add(claims, 1, __ATOMIC_RELAXED) * piece;
            if (own.first_row >= num_tokens) return;
            own.last_row = own.first_row + piece < num_tokens ? own.first_row + piece : num_tokens;
            for (const Instruction *in = first; in < first + first->run; in++) execute(*in, own);
        }
    };
    const Instruction *begin = run.program->instructions, *end = begin + run.program->num_instructions;
    for (const Instruction *in = begin; in < end; in++) {
        if (in->barriers & meets) barrier.wait();
        book(NUM_OPERATIONS);
        if (is_alone || !in->run) {
            execute(*in, worker);
        } else {
            execute_run(in, run.step->claims + (in - begin));
            in += in->run - 1;
        }
    }
}

struct Pack {
    const char *format;
    const uint8_t *raw;
    PackedWeight *weight;
};

void pack(void *context, int thread, int num_threads, Barrier &) {
    const Pack &job = *static_cast<Pack *>(context);
    const int64_t groups = job.weight->num_groups;
    pagoda_pack_weight(
        job.format, job.raw, job.weight, groups * thread / num_threads, groups * (thread + 1) / num_threads);
}

}  // namespace

// Whether this machine can run the kernels of that name.
extern "C" int32_t pagoda_supports(const char *instruction_set) { return kernels_for(instruction_set) != nullptr; }

extern "C" void pagoda_run(const Program *program, const Step *step, const char *instruction_set, int32_t num_threads) {
    Run run{program, step, kernels_for(instruction_set)};
    for (int64_t g = 0; g < step->num_tables; g++) order_rows(*step, step->tables[g]);
    std::memset(step->claims, 0, (size_t)program->num_instructions * sizeof(int32_t));
    if (run.kernels) run_together(num_threads, run_program, &run);
}

// The same for a step that nobody has checked: what is wrong with it, and then it is not run, or 0.
extern "C" int32_t pagoda_run_checked(
    const Program *program, const Step *step, const Limits *limits, const char *instruction_set, int32_t num_threads) {
    const int32_t problem = pagoda_check_step(program, step, limits);
    if (!problem) pagoda_run(program, step, instruction_set, num_threads);
    return problem;
}

extern "C" void pagoda_pack(const char *format, const uint8_t *raw, PackedWeight *weight, int32_t num_threads) {
    Pack job{format, raw, weight};
    run_together(num_threads, pack, &job);
}

// What a thread needs for products in whole numbers, in floats: for the set that needs most.
extern "C" int64_t pagoda_integer_scratch(int64_t num_columns, int64_t num_tokens) {
    return integer_scratch(num_columns, num_tokens);
}

// What a row of so many inputs takes once it is rounded to bytes.
extern "C" int64_t pagoda_integer_row_bytes(int64_t num_columns) { return integer_row_bytes(num_columns); }
