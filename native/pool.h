// A fixed team of threads that run one job together. Waiting spins for at most 50 microseconds and then parks, so that
// other processes on the same cores live.
#pragma once

#include <atomic>
#include <cstdint>

class Barrier {
  public:
    void reset(int num_threads) { num_threads_ = num_threads; }
    void wait();

  private:
    int num_threads_ = 1;
    std::atomic<int> num_waiting_{0};
    std::atomic<uint32_t> phase_{0};
    std::atomic<int> num_parked_{0};
};

typedef void (*Job)(void *context, int thread, int num_threads, Barrier &barrier);

// The calling thread is number 0. Only one job runs at a time.
void run_together(int num_threads, Job job, void *context);
