// One command of the program, one file: each adds itself to the argument parser, main.cpp lists them.
#pragma once
#include <CLI/CLI.hpp>
#include <stdexcept>

namespace graft::cli {

/// The command line makes no sense: exit status 2. (Errors in the work are graft::Error: exit status 1.)
class WrongUsage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A command that ran other programs, which have said themselves what went wrong.
class Failed : public std::exception {
 public:
  explicit Failed(int status) : status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

void add_bench(CLI::App& app);
void add_chat(CLI::App& app);
void add_combine(CLI::App& app);
void add_explain(CLI::App& app);
void add_forward(CLI::App& app);
void add_generate(CLI::App& app);
void add_info(CLI::App& app);
void add_init(CLI::App& app);
void add_launch(CLI::App& app);
void add_merge(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_train(CLI::App& app);

}  // namespace graft::cli
