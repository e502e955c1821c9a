// Runs the programs of the Python tests without starting them anew: a process that has loaded libtorch forks
// in a hundredth of a second, to load it takes half a second.
//   row_server SOCKET MODULES
// SOCKET is the number of an inherited SOCK_SEQPACKET socket, MODULES the folder with the programs, each
// linked as a shared library (graft.so). A request is one message of strings that end in '\0':
//   program, working folder, limit of the address space in bytes (0: none), number of arguments, the
//   arguments with the program's name first, the environment as NAME=value
// and four descriptors: standard input, output and error, and a pipe for the reply: one int, the status as
// waitpid gives it. One request, one process; requests may overlap. To close the pipe is to kill the process.
// At the end of the socket all of them are killed.
//
// The server itself runs no code of the libraries: it has no thread, no lock and no state that a process
// would start with. tests/programs.py is the other side.
#include <dlfcn.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

constexpr int kDescriptors = 4;
constexpr size_t kMostBytes = 1 << 20;

using Main = int (*)(int, char**, char**);

struct Request {
  std::string program, folder;
  rlim_t memory = 0;
  std::vector<std::string> arguments, environment;
  std::array<int, 3> standard{};
  int reply = -1;
};

struct Running {
  pid_t process;
  int reply;
};

[[noreturn]] void fail(const std::string& message) {
  std::cerr << "row_server: " << message << "\n";
  std::exit(1);
}

std::vector<std::string> split(const std::string& bytes) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < bytes.size(); at += parts.back().size() + 1)
    parts.emplace_back(bytes.c_str() + at);
  return parts;
}

/// Nothing at the end of the socket.
std::optional<Request> receive(int socket) {
  std::string bytes(kMostBytes, '\0');
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptors)];
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return std::nullopt;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_len != CMSG_LEN(sizeof(int) * kDescriptors) || message.msg_flags & MSG_TRUNC)
    fail("a request without its descriptors, or too long");
  std::array<int, kDescriptors> descriptors{};
  std::memcpy(descriptors.data(), CMSG_DATA(header), sizeof descriptors);

  bytes.resize(got);
  const auto parts = split(bytes);
  if (parts.size() < 4) fail("a request with too few strings");
  const auto arguments = parts.begin() + 4, environment = arguments + std::stol(parts[3]);
  return Request{.program = parts[0],
                 .folder = parts[1],
                 .memory = std::stoul(parts[2]),
                 .arguments = {arguments, environment},
                 .environment = {environment, parts.end()},
                 .standard = {descriptors[0], descriptors[1], descriptors[2]},
                 .reply = descriptors[3]};
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& each : strings) result.push_back(each.data());
  result.push_back(nullptr);
  return result;
}

class Server {
 public:
  Server(int socket, std::string modules) : socket_(socket), modules_(std::move(modules)) {
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, &unblocked_);
    signals_ = signalfd(-1, &ended, SFD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);  // a reply that nobody waits for
  }

  void serve() {
    while (true) {
      std::vector<pollfd> watched{{signals_, POLLIN, 0}, {socket_, POLLIN, 0}};
      for (const auto& each : running_) watched.push_back({each.reply, 0, 0});
      if (poll(watched.data(), watched.size(), -1) < 0) continue;
      for (size_t i = 0; i < running_.size(); ++i)
        if (watched[i + 2].revents) kill(running_[i].process, SIGKILL);  // nobody waits for it any more
      if (watched[0].revents) report_ended();
      if (!watched[1].revents) continue;
      auto request = receive(socket_);
      if (!request) break;
      start(*request);
    }
    for (const auto& each : running_) kill(each.process, SIGKILL);
  }

 private:
  void start(Request& request) {
    const auto main = main_of(request.program);
    const pid_t server = getpid(), process = fork();
    if (process < 0) fail("fork failed");
    if (process == 0) run(request, main, server);
    for (const int each : request.standard) close(each);
    running_.push_back({process, request.reply});
  }

  void report_ended() {
    signalfd_siginfo information;
    if (read(signals_, &information, sizeof information) < 0) return;
    int status = 0;
    for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;)
      std::erase_if(running_, [&](const Running& each) {
        if (each.process != process) return false;
        [[maybe_unused]] const auto written = write(each.reply, &status, sizeof status);
        close(each.reply);
        return true;
      });
  }

  /// What is loaded here, no child has to load. Static initialisers run; nothing else does.
  Main main_of(const std::string& program) {
    auto& found = mains_[program];
    if (found) return found;
    void* module = dlopen((modules_ + "/" + program + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module) found = reinterpret_cast<Main>(dlsym(module, "main"));
    if (!found) fail(dlerror());
    return found;
  }

  /// In the child. An exception that leaves `main` must find no handler here, as in a process of its own.
  [[noreturn]] void run(Request& request, Main main, pid_t server) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != server) _exit(1);
    prctl(PR_SET_NAME, request.program.c_str());
    for (const auto& each : running_) close(each.reply);
    for (const int each : {socket_, signals_, request.reply}) close(each);
    for (int i = 0; i < 3; ++i) {
      dup2(request.standard[i], i);
      close(request.standard[i]);
    }
    if (chdir(request.folder.c_str()) != 0) fail("no folder " + request.folder);
    if (const rlimit limit{request.memory, request.memory}; request.memory) setrlimit(RLIMIT_AS, &limit);
    sigprocmask(SIG_SETMASK, &unblocked_, nullptr);
    signal(SIGPIPE, SIG_DFL);

    clearenv();
    for (auto& each : request.environment) putenv(each.data());
    auto arguments = pointers(request.arguments);
    const int status = main(static_cast<int>(request.arguments.size()), arguments.data(), environ);
    std::cout.flush();
    std::fflush(nullptr);
    _exit(status);
  }

  int socket_, signals_ = -1;
  std::string modules_;
  sigset_t unblocked_{};
  std::vector<Running> running_;
  std::map<std::string, Main> mains_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail("see the top of its source");
  Server(std::stoi(argv[1]), argv[2]).serve();
  _exit(0);  // what libtorch takes down at the end is not worth the wait
}
