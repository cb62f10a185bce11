#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <mutex>

namespace {

constexpr int64_t SPIN_NANOSECONDS = 50000;
constexpr int LOOKS_BETWEEN_CLOCKS = 64;

int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void park(std::atomic<uint32_t> &word, uint32_t seen) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void unpark(std::atomic<uint32_t> &word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// Until the word is no longer `seen`.
void await_change(std::atomic<uint32_t> &word, uint32_t seen, std::atomic<int> &num_parked) {
    const int64_t deadline = now() + SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < LOOKS_BETWEEN_CLOCKS; i++) {
            if (word.load(std::memory_order_acquire) != seen) return;
            relax();
        }
    } while (now() < deadline);
    num_parked.fetch_add(1);
    while (word.load() == seen) park(word, seen);
    num_parked.fetch_sub(1);
}

void change(std::atomic<uint32_t> &word, std::atomic<int> &num_parked) {
    word.fetch_add(1);
    if (num_parked.load()) unpark(word);
}

struct Team {
    std::mutex mutex;
    int num_members = 1;
    std::atomic<uint32_t> jobs{0};
    std::atomic<int> num_parked{0};
    std::atomic<int> num_busy{0};
    std::atomic<uint32_t> done{0};
    std::atomic<int> done_parked{0};
    Job job = nullptr;
    void *context = nullptr;
    int num_threads = 1;
    Barrier barrier;
};

Team *team = nullptr;

struct Member {
    Team *team;
    int number;
    uint32_t seen;
};

void *member_main(void *argument) {
    Member member = *static_cast<Member *>(argument);
    delete static_cast<Member *>(argument);
    Team &t = *member.team;
    for (;;) {
        await_change(t.jobs, member.seen, t.num_parked);
        member.seen++;
        if (member.number < t.num_threads) t.job(t.context, member.number, t.num_threads, t.barrier);
        if (t.num_busy.fetch_sub(1) == 1) change(t.done, t.done_parked);
    }
    return nullptr;
}

// Threads do not survive a fork, and a mutex that one of them held would stay shut: a child process starts a team of its
// own. That nobody makes a team at the moment of the fork, the two handlers around it see to.
std::mutex making;

void before_fork() { making.lock(); }
void in_parent() { making.unlock(); }
void in_child() {
    team = nullptr;
    making.unlock();
}

Team &current_team() {
    std::lock_guard<std::mutex> lock(making);
    static const int registered = pthread_atfork(before_fork, in_parent, in_child);
    (void)registered;
    if (!team) team = new Team;
    return *team;
}

void grow(Team &t, int num_threads) {
    while (t.num_members < num_threads) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        Member *member = new Member{&t, t.num_members, t.jobs.load()};
        int failed = pthread_create(&thread, &attributes, member_main, member);
        pthread_attr_destroy(&attributes);
        if (failed) {
            delete member;
            return;
        }
        t.num_members++;
    }
}

}  // namespace

void Barrier::wait() {
    if (num_threads_ == 1) return;
    const uint32_t seen = phase_.load();
    if (num_waiting_.fetch_add(1) + 1 == num_threads_) {
        num_waiting_.store(0);
        change(phase_, num_parked_);
        return;
    }
    await_change(phase_, seen, num_parked_);
}

void run_together(int num_threads, Job job, void *context) {
    Team &t = current_team();
    std::lock_guard<std::mutex> lock(t.mutex);
    grow(t, num_threads);
    t.num_threads = num_threads < t.num_members ? num_threads : t.num_members;
    t.barrier.reset(t.num_threads);
    t.job = job;
    t.context = context;
    if (t.num_members > 1) {
        const uint32_t seen = t.done.load();
        t.num_busy.store(t.num_members - 1);
        change(t.jobs, t.num_parked);
        job(context, 0, t.num_threads, t.barrier);
        await_change(t.done, seen, t.done_parked);
    } else {
        job(context, 0, 1, t.barrier);
    }
}
