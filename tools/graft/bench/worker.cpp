#include "bench/worker.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <iostream>

#include "bench/device.h"
#include "bench/requests.h"
#include "graft/compile.h"
#include "graft/error.h"
#include "graft/version.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;

double timed(Work& work, const std::string& device) {
  const auto start = std::chrono::steady_clock::now();
  work.call();
  wait_for(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

ordered_json counters_now() {
  const auto now = counters();
  return {{"graphs", now.graphs},
          {"kernels", now.kernels},
          {"extern_calls", now.extern_calls},
          {"cache_hits", now.cache_hits},
          {"compile_s", now.compile_seconds}};
}

class Worker {
 public:
  ordered_json answer(const ordered_json& request) {
    const auto what = request.at("do").get<std::string>();
    if (what == "make") return make_files(request), ordered_json::object();
    if (what == "load") {
      // What the row before has left is not this one's: memory, programs, counts.
      work_.reset();
      reset();
      work_ = load_work(request);
      device_ = request.at("device");
      return ordered_json::object();
    }
    if (what == "quit") return ordered_json::object();
    if (!work_) throw UsageError("[bench] \"" + what + "\" before \"load\"");
    if (what == "first_call") {
      wait_for(device_);
      const auto seconds = timed(*work_, device_);
      return {{"seconds", seconds}, {"counters", counters_now()}};
    }
    if (what == "outputs") {
      work_->rewind();
      work_->call();
      save_safetensors(request.at("path").get<std::string>(), on_host(work_->outputs()));
      return ordered_json::object();
    }
    if (what == "nudge") return work_->nudge(), ordered_json::object();
    if (what == "facts") return facts();
    if (what == "run") return {{"times_ms", run(request.at("calls").get<int64_t>())}};
    throw UsageError("[bench] unknown request \"" + what + "\"");
  }

 private:
  static NamedTensors on_host(NamedTensors tensors) {
    for (auto& [name, tensor] : tensors) tensor = tensor.cpu();
    return tensors;
  }

  ordered_json facts() {
    auto known = work_->facts();
    known.update(peak_of(device_, [this] {
      work_->rewind();
      work_->call();
    }));
    if (const auto now = counters(); now.graphs > 0) known["recompiles"] = now.recompiles;
    return known;
  }

  std::vector<double> run(int64_t calls) {
    work_->rewind();
    timed(*work_, device_);  // brings the processor's caches back from whoever had them before
    std::vector<double> times;
    times.reserve(static_cast<size_t>(calls));
    for (int64_t i = 0; i < calls; ++i) {
      work_->rewind();
      times.push_back(1e3 * timed(*work_, device_));
    }
    return times;
  }

  std::unique_ptr<Work> work_;
  std::string device_;
};

}  // namespace

void serve() {
  std::cout << ordered_json{{"versions", {{"graft", build_summary()}}}} << "\n" << std::flush;
  Worker worker;
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = ordered_json::parse(line);
    ordered_json reply;
    try {
      reply = worker.answer(request);
    } catch (const c10::Error& error) {
      reply = {{"error", error.what_without_backtrace()}};
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n" << std::flush;
    if (request.at("do") == "quit") return;
  }
}

}  // namespace graft::cli::bench
