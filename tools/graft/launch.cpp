// graft launch: starts the processes of a distributed run on this machine and looks after them.
#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <thread>

#include "command.h"
#include "graft/error.h"
#include "graft/process_group.h"

namespace graft::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct LaunchFlags {
  int processes = 1;
  int port = 0;
  CLI::App* command = nullptr;
};

/// One that nobody listens at. (Somebody else may take it before rank 0 does: then that says so.)
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (socket >= 0) ::close(socket);
  if (!found) throw IoError(std::string("[launch] no free port: ") + std::strerror(errno));
  return ntohs(address.sin_port);
}

/// `train ...` and `graft train ...` are this program's.
std::vector<std::string> full_command(std::vector<std::string> words, const CLI::App& program) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  if (words[0] == "graft")
    words[0] = self;
  else if (!program.get_subcommands([&](const CLI::App* each) { return each->get_name() == words[0]; })
                .empty())
    words.insert(words.begin(), self);
  return words;
}

/// The signals that the launcher takes one by one in its loop.
sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

pid_t start(const std::vector<std::string>& words, int rank, const LaunchFlags& flags) {
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(flags.processes)},
      {"LOCAL_WORLD_SIZE", std::to_string(flags.processes)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(flags.port)}};
  // Else each process would have as many threads as there are cores.
  const auto threads =
      std::max(1U, std::thread::hardware_concurrency() / static_cast<unsigned>(flags.processes));
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto launcher = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw IoError(std::string("[launch] cannot start a process: ") + std::strerror(errno));
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody continues alone when the launcher is killed
  if (::getppid() != launcher) std::_Exit(1);
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
  ::setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), /*overwrite=*/0);
  const auto signals = watched_signals();
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  ::execvp(arguments[0], arguments.data());
  std::cerr << "graft: [launch] cannot run " << words[0] << ": " << std::strerror(errno) << "\n";
  std::_Exit(127);
}

class Processes {
 public:
  void add(pid_t process, int rank) { running_[process] = rank; }
  bool any() const { return !running_.empty(); }
  bool failed() const { return status_ != 0; }
  bool some_ended() const { return ended_ > 0; }
  /// Of the first that failed by itself; after a signal to all, the shell's way of saying that.
  int status() const {
    return failed() ? status_ : stopped_by_ > 0 && bad_after_stop_ ? 128 + stopped_by_ : 0;
  }

  void send(int signal) const {
    for (const auto& [process, rank] : running_) ::kill(process, signal);
  }

  /// Those that have ended since.
  void collect() {
    int how = 0;
    for (pid_t process = 0; (process = ::waitpid(-1, &how, WNOHANG)) > 0;) {
      const auto at = running_.find(process);
      if (at == running_.end()) continue;
      const auto name = "rank " + std::to_string(at->second);
      running_.erase(at);
      ++ended_;
      const bool good = WIFEXITED(how) && WEXITSTATUS(how) == 0;
      bad_after_stop_ |= !good;
      if (good || stopped_by_ > 0) continue;
      const auto end = WIFSIGNALED(how) ? "was killed by signal " + std::to_string(WTERMSIG(how)) + " (" +
                                              strsignal(WTERMSIG(how)) + ")"
                                        : "ended with status " + std::to_string(WEXITSTATUS(how));
      std::cerr << "graft: [launch] " << name << " " << end << "\n";
      if (status_ == 0) status_ = WIFEXITED(how) && WEXITSTATUS(how) == 2 ? 2 : 1;
    }
  }

  void stop(int signal) {
    if (stopped_by_ == 0) stopped_by_ = signal;
    send(signal);
  }

 private:
  std::map<pid_t, int> running_;
  int status_ = 0, ended_ = 0, stopped_by_ = 0;
  bool bad_after_stop_ = false;
};

/// Until all have ended. When one fails, the others get the time to say so themselves; after a signal they
/// have the time that a last checkpoint takes, until one has ended or another signal comes.
int look_after(Processes& all) {
  const auto signals = watched_signals();
  const auto grace = ProcessGroupOptions::from_environment().peer_timeout + std::chrono::seconds(10);
  std::optional<Clock::time_point> end_at;
  int harshness = 0, signals_seen = 0;
  while (all.any()) {
    const timespec second{1, 0};
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
      all.stop(signal);
      if (++signals_seen > 1 && !end_at) end_at = Clock::now() + std::chrono::seconds(5);
    }
    all.collect();
    if ((all.failed() || (signals_seen > 0 && all.some_ended())) && !end_at) end_at = Clock::now() + grace;
    if (end_at && Clock::now() > *end_at) {
      all.send(harshness++ == 0 ? SIGTERM : SIGKILL);
      end_at = Clock::now() + std::chrono::seconds(5);
    }
  }
  return all.status();
}

void run(LaunchFlags flags, const CLI::App& program) {
  auto words = flags.command->remaining();
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty()) throw WrongUsage("say what to run: graft launch -n 2 train --model DIR ...");
  words = full_command(std::move(words), program);
  if (flags.port == 0) flags.port = free_port();
  const auto signals = watched_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  Processes all;
  for (int rank = 0; rank < flags.processes; ++rank) all.add(start(words, rank, flags), rank);
  if (const int status = look_after(all); status != 0) throw Failed(status);
}

}  // namespace

void add_launch(CLI::App& app) {
  auto* command = app.add_subcommand("launch", "Run a command in several processes that train together");
  auto flags = std::make_shared<LaunchFlags>();
  flags->command = command;
  command->add_option("-n,--nproc-per-node", flags->processes, "Start N processes")
      ->required()
      ->check(CLI::Range(1, 1024));
  command->add_option("--master-port", flags->port, "Let them meet at this port (default: a free one)")
      ->check(CLI::Range(1, 65535));
  command->prefix_command();
  command->footer(
      "Sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun does, and OMP_NUM_THREADS "
      "to a "
      "share of the cores.\n\nExample:\n  graft launch -n 2 train --model checkpoints/llama --adapter-config "
      "lora.json --tokens tokens.safetensors --output out");
  command->callback([flags, &app] { run(*flags, app); });
}

}  // namespace graft::cli
