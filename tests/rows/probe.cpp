// What a process sees of its surroundings and how it can end, for test_row_server.py.
//   probe show           its arguments, folder, chosen variables, limits, threads and standard input
//   probe STATUS         leaves with it
//   probe abort|throw|crash|sleep|exhaust
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>

namespace {

void show(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) std::cout << "argument " << argv[i] << "\n";
  std::cout << "folder " << std::filesystem::current_path().string() << "\n";
  for (const char* name : {"PROBE", "HOME", "LD_BIND_NOW"})
    if (const char* value = std::getenv(name)) std::cout << name << "=" << value << "\n";
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  std::cout << "memory " << limit.rlim_cur << "\n";
  for (const char* what : {"/proc/self/task", "/proc/self/fd"}) {
    const std::filesystem::directory_iterator entries(what);
    std::cout << what << " " << std::distance(begin(entries), end(entries)) << "\n";
  }
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  std::cout << "SIGPIPE ignored " << (signal(SIGPIPE, SIG_DFL) == SIG_IGN) << "\n";
  std::cout << "SIGCHLD blocked " << sigismember(&blocked, SIGCHLD) << "\n" << std::cin.rdbuf();
  std::cerr << "said as an error\n";
}

/// Static destructors and atexit are part of a process's end as well.
void leave(int status) { std::exit(status); }

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "show") return show(argc, argv), 0;
  std::cout << "before the end" << std::endl;
  if (what == "abort") std::abort();
  if (what == "throw") throw std::runtime_error("nobody catches this");
  if (what == "crash") std::raise(SIGSEGV);
  if (what == "exhaust") {
    void* volatile block = std::malloc(size_t{8} << 30);
    return block ? 0 : 5;
  }
  if (what == "sleep")
    while (true) pause();
  leave(std::stoi(what));
}
