#include "bench/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

extern char** environ;

namespace graft::cli::bench {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void throw_if_interrupted() {
  if (interrupted) throw Interrupted();
}

/// The processes below `pid`, also those in sessions of their own: Inductor's compile workers are.
void append_descendants(pid_t pid, std::vector<pid_t>& found) {
  std::error_code none;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", none)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) {
      found.push_back(child);
      append_descendants(child, found);
    }
  }
}

std::vector<std::string> with_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    if (!added.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (auto& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::pair<FileDescriptor, FileDescriptor> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(std::string("[bench] no pipe: ") + std::strerror(errno));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// The last lines of a log that say something.
std::string end_of(const std::filesystem::path& log) {
  std::ifstream file(log);
  std::ostringstream text;
  text << file.rdbuf();
  auto all = text.str();
  all.erase(all.find_last_not_of(" \n") + 1);
  constexpr size_t kShown = 1500;
  return all.size() > kShown ? "..." + all.substr(all.size() - kShown) : all;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a child that died is found out by its reply, which does not come
}

InterruptGuard::~InterruptGuard() {
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) std::signal(number, SIG_DFL);
}

Child::Child(std::string name, const std::vector<std::string>& command,
             const std::map<std::string, std::string>& environment, std::filesystem::path log)
    : name_(std::move(name)), log_(std::move(log)) {
  throw_if_interrupted();
  auto [their_in, our_out] = make_pipe();
  auto [our_in, their_out] = make_pipe();
  auto arguments = command, variables = with_environment(environment);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, their_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, their_out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  // A process group of its own: the terminal's Ctrl-C reaches us only, and we end the children.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawnp(&pid_, arguments[0].c_str(), &files, &attributes,
                                   pointers(arguments).data(), pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    pid_ = -1;
    throw Error("[bench] cannot start " + command[0] + ": " + std::strerror(error));
  }
  to_ = std::move(our_out);
  from_ = std::move(our_in);
  // Held only by the child from now on, so that its end is the pipe's end.
  their_in = FileDescriptor();
  their_out = FileDescriptor();
  // From here on the destructor does not run if this throws.
  try {
    versions_ = read_reply().at("versions");
  } catch (...) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    throw;
  }
}

Child::~Child() {
  if (pid_ < 0) return;
  std::vector<pid_t> below;
  append_descendants(pid_, below);
  ::kill(-pid_, SIGKILL);
  for (const auto pid : below) ::kill(pid, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

ordered_json Child::ask(const ordered_json& request) {
  throw_if_interrupted();
  const auto line = request.dump() + "\n";
  for (size_t done = 0; done < line.size();) {
    const auto count = ::write(to_.get(), line.data() + done, line.size() - done);
    if (count < 0 && errno != EINTR) fail("it ended too soon");
    throw_if_interrupted();
    if (count > 0) done += static_cast<size_t>(count);
  }
  return read_reply();
}

void Child::quit() {
  if (pid_ < 0) return;
  ask({{"do", "quit"}});
  to_ = FileDescriptor();
  constexpr int kTries = 500;
  for (int i = 0; i < kTries; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string Child::read_line() {
  for (;;) {
    const auto end = buffered_.find('\n');
    if (end != std::string::npos) {
      auto line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    // With a time-out: a signal that comes just before poll() would else be noticed only after the reply.
    constexpr int kMilliseconds = 200;
    pollfd wanted{.fd = from_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wanted, 1, kMilliseconds);
    throw_if_interrupted();
    if (ready <= 0) continue;
    char part[4096];
    const auto count = ::read(from_.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("it ended too soon");
    buffered_.append(part, static_cast<size_t>(count));
  }
}

ordered_json Child::read_reply() {
  const auto line = read_line();
  auto reply = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!reply.is_object()) fail("it said \"" + line + "\", which is no reply");
  if (reply.contains("error")) throw Error("[bench] " + name_ + ": " + reply["error"].get<std::string>());
  return reply;
}

void Child::fail(const std::string& what) {
  const auto said = end_of(log_);
  throw Error("[bench] " + name_ + ": " + what + (said.empty() ? "" : "\n" + said));
}

}  // namespace graft::cli::bench
