// The graft program. Exit status: 0 done, 1 an error in the work, 2 wrong usage.
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "command.h"
#include "graft/error.h"
#include "graft/version.h"
#include "wrong_usage.h"

namespace {

constexpr int kFailed = 1, kWrongUsage = 2;

int fail(int status, std::string_view message) {
  std::cerr << "graft: " << message << "\n";
  return status;
}

/// torch's messages carry a C++ backtrace; people get the first line.
std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

int run(int argc, char** argv) {
  CLI::App app{"Compiles PyTorch C++ models and the adapters that fine-tune them.", "graft"};
  app.footer(
      "Example:\n  graft forward --model DIR --input in.safetensors --output out.safetensors\n\n`graft "
      "COMMAND --help` says more.");
  app.set_version_flag("--version", graft::build_summary());
  app.require_subcommand(1);
  for (auto* add :
       {graft::cli::add_forward, graft::cli::add_generate, graft::cli::add_chat, graft::cli::add_train,
        graft::cli::add_init, graft::cli::add_merge, graft::cli::add_combine, graft::cli::add_explain,
        graft::cli::add_info, graft::cli::add_tokenize, graft::cli::add_launch, graft::cli::add_bench})
    add(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    const auto given = app.get_subcommands();
    const auto& command = given.empty() ? app : *given.front();
    return fail(kWrongUsage, graft::cli::what_is_wrong(command, error) + "; `graft" +
                                 (given.empty() ? "" : " " + command.get_name()) +
                                 " --help` lists what there is");
  } catch (const graft::cli::Failed& failed) {
    return failed.status();
  } catch (const graft::cli::WrongUsage& error) {
    return fail(kWrongUsage, error.what());
  } catch (const graft::Error& error) {
    return fail(kFailed, error.what());
  } catch (const c10::Error& error) {
    return fail(kFailed, "[torch] " + first_line(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "out of memory");
  } catch (const std::exception& error) {
    return fail(kFailed, first_line(error.what()));
  }
}

/// Who started the program may have closed them (`>&-`): the next file that is opened would take their place,
/// and messages would go into it.
void open_standard_streams() {
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    while (::fcntl(each, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) >= 0) {
    }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows past `ulimit -f` is an error that is said, not the end
  int status = run(argc, argv);
  errno = 0;
  if (!std::cout.flush() && status == 0)
    status = fail(kFailed, std::string("cannot write the standard output") +
                               (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
  std::cerr.flush();
  std::fflush(nullptr);
  // What libtorch takes down at the end of a process costs a third of a short command's time, and does
  // nothing for it.
  std::_Exit(status);
}
